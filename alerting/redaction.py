"""Redaction of evaluations: no secret value leaves the driver in a finding or a reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from ..core.redaction import WITHHELD, Redactor, redact, unusable
from ..core.secret import Secret, secret_parts
from .evaluate import Evaluation
from .finding import Finding, Words
from .words.messages import say

log = logging.getLogger("querypulse")

NAMES = "spark.redaction.regex"
"""Hides the value of a setting whose name matches. Our own names include Spark's default."""
OPTIONS = "spark.sql.redaction.options.regex"
"""The same for options of data sources."""
OPTIONS_DEFAULT = "(?i)url"
TEXTS = ("spark.redaction.string.regex", "spark.sql.redaction.string.regex")
"""Hide every match in any text."""

Conf = Callable[[str], str | None]
Redact = Callable[[str], str]
KEPT_TEXTS = 4096
ERROR_CLASS = "error_class"
"""The evidence that is kept when everything else must be withheld."""


class EvaluationRedactor:
    """Calling it with an evaluation returns that evaluation without secrets.

    It recognizes secrets by shape, by ``patterns``, by our own ``secrets`` as last read by
    ``refresh``, and after ``honour`` by Spark's own redaction settings.
    """

    def __init__(self, secrets: Sequence[Secret] = (), patterns: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self._patterns = patterns
        self._conf: Mapping[str, str | None] = {}
        self._renew()

    def honour(self, conf: Conf) -> None:
        """Apply a Spark session's redaction settings; ``conf`` returns a setting by name."""
        self._conf = {name: conf(name) for name in (NAMES, OPTIONS, *TEXTS)}
        self._renew()

    def __call__(self, evaluation: Evaluation) -> Evaluation:
        """Redact all texts of findings and health; reads no file."""
        return redacted(evaluation, self._repeated)

    @property
    def reads_files(self) -> bool:
        """Whether any key comes from a file."""
        return any(secret.is_from_file for secret in self._secrets)

    @property
    def problem(self) -> str:
        """Why a key may be old; empty if each file was readable."""
        return next((secret.problem for secret in self._secrets if secret.problem), "")

    def refresh(self) -> None:
        """Read our own keys again, because files may change; for a separate thread."""
        values = tuple(secret.reveal() for secret in self._secrets)
        if values != self._values:
            self._renew()

    def text(self, text: str) -> str:
        """Redact one text; reads no file, so any thread may call it."""
        return self._text(text)

    def _renew(self) -> None:
        """Build the redactor. Spark's patterns are Java's: one that Python cannot use hides all."""
        self._values = tuple(secret.known for secret in self._secrets)
        names, options = self._conf.get(NAMES), self._conf.get(OPTIONS)
        options = OPTIONS_DEFAULT if options is None else options
        texts = {name: value for name in TEXTS if (value := self._conf.get(name))}
        for name, pattern in {NAMES: names or "", OPTIONS: options, **texts}.items():
            # They are Spark's settings, so they must not stop the job's start.
            if problem := unusable(pattern):
                log.error("querypulse: %s: %s; all it could hide is withheld", name, problem)
        redactor = Redactor(
            [part for value in self._values for part in secret_parts(value)],
            (*self._patterns, *texts.values()),
            key_patterns=[names] if names else [],
            option_patterns=[options] if options else [],
        )
        self._text = redactor.text
        # The failures of an hour ago are in every evaluation.
        self._repeated = lru_cache(KEPT_TEXTS)(redactor.text)


def redacted(evaluation: Evaluation, text: Redact) -> Evaluation:
    """Redact the words of all findings and of the health.

    Labels of queries stay, since they identify. Facts stay inside: nothing sends them.
    """
    findings = tuple(_finding(finding, text) for finding in evaluation.findings)
    health = {
        label: replace(query, reason=text(query.reason), likely_cause=text(query.likely_cause))
        if query.reason
        else query
        for label, query in evaluation.health.items()
    }
    return replace(evaluation, findings=findings, health=health)


def _finding(finding: Finding, text: Redact) -> Finding:
    words = finding.words or say(finding)
    evidence = {name: text(value) for name, value in words.evidence.items()}
    reason = text(words.reason)
    if evidence.get(ERROR_CLASS) == WITHHELD:
        # A page must give a cause; the class was already redacted by pattern on arrival.
        evidence[ERROR_CLASS] = redact(words.evidence[ERROR_CLASS])
        reason = f"{evidence[ERROR_CLASS]}: {WITHHELD}"
    said = Words(reason, text(words.summary), evidence, text(words.cause))
    return replace(finding, words=said)
