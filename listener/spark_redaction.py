"""What a Spark session itself wants hidden, by its redaction settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from .redaction import Redactor, unusable

log = logging.getLogger("querypulse")

NAMES = "spark.redaction.regex"
"""Found in a setting's name, hides its value. Spark's default is part of our own names."""
OPTIONS = "spark.sql.redaction.options.regex"
"""The same for options of data sources."""
OPTIONS_DEFAULT = "(?i)url"
TEXTS = ("spark.redaction.string.regex", "spark.sql.redaction.string.regex")
"""What it matches in any text is hidden."""


def session_redactor(
    conf: Callable[[str], str | None],
    secrets: Iterable[str] = (),
    patterns: Iterable[str] = (),
) -> Redactor:
    """Make the redactor of one session; ``conf`` answers None for what is not set.

    ``lambda name: spark.conf.get(name, None)`` is such a ``conf``. ``secrets`` are our own,
    ``patterns`` those of our settings. Spark's patterns are Java's: one that Python cannot
    use is said in the log, and hides all it could.
    """
    names = conf(NAMES)
    options = OPTIONS_DEFAULT if (own := conf(OPTIONS)) is None else own
    texts = {name: value for name in TEXTS if (value := conf(name))}
    _report_unusable({NAMES: names or "", OPTIONS: options, **texts})
    return Redactor(
        secrets,
        (*patterns, *texts.values()),
        key_patterns=[names] if names else [],
        option_patterns=[options] if options else [],
    )


def _report_unusable(settings: dict[str, str]) -> None:
    """Nobody asked us to read them, so they are no reason to stop the job's start."""
    for name, pattern in settings.items():
        problem = unusable(pattern)
        if problem:
            log.error("querypulse: %s: %s; all it could hide is withheld", name, problem)
