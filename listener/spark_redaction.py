"""Builds a redactor from a Spark session's redaction settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ..core.redaction import Redactor, unusable

log = logging.getLogger("querypulse")

NAMES = "spark.redaction.regex"
"""Hides the value of a setting whose name matches. Our own names include Spark's default."""
OPTIONS = "spark.sql.redaction.options.regex"
"""The same for options of data sources."""
OPTIONS_DEFAULT = "(?i)url"
TEXTS = ("spark.redaction.string.regex", "spark.sql.redaction.string.regex")
"""Hide every match in any text."""


def session_redactor(
    conf: Callable[[str], str | None],
    secrets: Iterable[str] = (),
    patterns: Iterable[str] = (),
) -> Redactor:
    """Build the redactor of one session; ``conf`` returns None for a setting that is not set.

    ``lambda name: spark.conf.get(name, None)`` is such a ``conf``. ``secrets`` are our own
    secrets, ``patterns`` come from our settings. Spark's patterns are Java's: a pattern that
    Python cannot use is logged and hides everything that it could match.
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
    """Log unusable patterns; they are Spark's settings, so they must not stop the job's start."""
    for name, pattern in settings.items():
        problem = unusable(pattern)
        if problem:
            log.error("querypulse: %s: %s; all it could hide is withheld", name, problem)
