"""Removes secrets, our own included, from every evaluation before it is published or sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from ..alerting.evaluate import Evaluation
from ..alerting.finding import Finding
from ..alerting.query_health import QueryHealth
from ..core.redaction import WITHHELD, redact, unusable
from ..listener.spark_redaction import NAMES, OPTIONS, TEXTS, session_redactor
from .own_values import own_secrets, secret_parts
from .settings import Settings, SettingsError

Conf = Callable[[str], str | None]
Redact = Callable[[str], str]
ERROR_CLASS = "error_class"
"""The evidence that is kept when everything else must be withheld."""


class Redacting:
    """Calling it with an evaluation returns that evaluation without secrets.

    It recognizes secrets by shape, by the patterns of the settings, by our own keys as last read
    by ``refresh``, and after ``honour`` by Spark's own redaction settings.

    Raises:
        SettingsError: a pattern is not a regular expression, or a secret's file cannot be read.

    """

    def __init__(self, settings: Settings) -> None:
        _require_usable(settings.redact_patterns)
        self._patterns = settings.redact_patterns
        try:
            self._secrets = own_secrets(settings)
        except SettingsError:
            raise
        except ValueError as error:
            raise SettingsError(str(error)) from None
        self._conf: Mapping[str, str | None] = {}
        self._renew()

    def honour(self, conf: Conf) -> None:
        """Apply a Spark session's redaction settings; ``conf`` returns a setting by name."""
        self._conf = {name: conf(name) for name in (NAMES, OPTIONS, *TEXTS)}
        self._renew()

    def __call__(self, evaluation: Evaluation) -> Evaluation:
        """Redact all texts of findings and health; reads no file."""
        with self._repeated as text:
            return redacted(evaluation, text)

    @property
    def reads_files(self) -> bool:
        """Whether any key comes from a file."""
        return any(secret.is_from_file for secret in self._secrets)

    @property
    def problem(self) -> str:
        """Why a key may be old; empty if each file was readable."""
        return next((one.problem for one in self._secrets if one.problem), "")

    def refresh(self) -> None:
        """Read our own keys again, because files may change; for a separate thread."""
        values = tuple(secret.reveal() for secret in self._secrets)
        if values != self._values:
            self._renew()

    def text(self, text: str) -> str:
        """Redact one text; reads no file, so any thread may call it."""
        return self._text(text)

    def _renew(self) -> None:
        self._values = tuple(secret.known for secret in self._secrets)
        parts = [part for value in self._values for part in secret_parts(value)]
        redactor = session_redactor(self._conf.get, secrets=parts, patterns=self._patterns)
        self._text = redactor.text
        self._repeated = RepeatedTexts(redactor.text)


def _require_usable(patterns: Sequence[str]) -> None:
    for position, pattern in enumerate(patterns):
        problem = unusable(pattern)
        if problem:
            # The pattern is not shown: it may contain the secret that it hides.
            raise SettingsError(f"setting 'redact_patterns', at [{position}]: {problem}")


class RepeatedTexts:
    """A context manager around each evaluation: its texts are redacted once.

    The failures of an hour ago are in every evaluation; only what is new takes time. What the
    latest evaluation did not contain is forgotten.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._latest: dict[str, str] = {}
        self._current: dict[str, str] = {}

    def __enter__(self) -> Redact:
        return self._text

    def __exit__(self, *_: object) -> None:
        self._latest, self._current = self._current, {}

    def _text(self, text: str) -> str:
        clean = self._current.get(text, self._latest.get(text))
        if clean is None:
            clean = self._redact(text)
        self._current[text] = clean
        return clean


def redacted(evaluation: Evaluation, text: Redact) -> Evaluation:
    """Redact every text of all findings and of the health; labels stay, since they identify."""
    findings = tuple(_finding(finding, text) for finding in evaluation.findings)
    health = {label: _health(one, text) for label, one in evaluation.health.items()}
    return replace(evaluation, findings=findings, health=health)


def _finding(finding: Finding, text: Redact) -> Finding:
    evidence = {name: text(value) for name, value in finding.evidence.items()}
    reason = text(finding.reason)
    if evidence.get(ERROR_CLASS) == WITHHELD:
        # A page must give a cause; the class was already redacted by pattern on arrival.
        evidence[ERROR_CLASS] = redact(finding.evidence[ERROR_CLASS])
        reason = f"{evidence[ERROR_CLASS]}: {WITHHELD}"
    return replace(
        finding,
        reason=reason,
        summary=text(finding.summary),
        evidence=evidence,
        cause=text(finding.cause),
    )


def _health(health: QueryHealth, text: Redact) -> QueryHealth:
    return replace(health, reason=text(health.reason)) if health.reason else health
