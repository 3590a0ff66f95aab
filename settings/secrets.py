"""Secrets: refused in the Spark conf, and removed from everything that leaves the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from ..alerting.evaluate import Evaluation
from ..alerting.finding import Finding
from ..alerting.receivers.receiver import Holds, holds
from ..core.redaction import (
    WITHHELD,
    Redactor,
    is_random,
    names_secret,
    redact,
    secrets_of_url,
    unusable,
)
from ..core.secret import Secret
from ..exporter.push import parse_headers
from .receivers import as_settings_error
from .settings import Settings, SettingsError

log = logging.getLogger("querypulse")


# -- own values -------------------------------------------------------------------------------
# The secrets in querypulse's own settings: they must not leave the driver in any text, and not be
# in the Spark conf, which event logs and the Spark UI show.

ELSEWHERE = "give it in the environment, or in the file that QUERYPULSE_CONFIG names"


def _declared_texts(settings: Settings) -> Iterator[tuple[str, Holds, str, str]]:
    """Each declared text: its setting, what it holds, the text, and what to do in place of it."""
    records: dict[str, msgspec.Struct] = {"": settings}
    records |= {f"queries.{pattern}.": own for pattern, own in settings.queries.items()}
    records |= {f"receivers[{number}].": own for number, own in enumerate(settings.receivers)}
    for place, record in records.items():
        for field, kind in holds(type(record)).items():
            has_file = f"{field}_file" in record.__struct_fields__
            instead = f"give '{field}_file' instead" if has_file else ELSEWHERE
            value = getattr(record, field)
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str):
                    yield place + field, kind, text, instead


def own_secrets(settings: Settings) -> list[Secret]:
    """Every key, token and URL in the settings or in the files that they name.

    Raises:
        ValueError: a file cannot be read; the message names its setting.

    """
    secrets = []
    for setting, kind, text, _ in _declared_texts(settings):
        if kind in (Holds.KEY, Holds.URL, Holds.ADDRESS):
            secrets.append(Secret(text))
        elif kind is Holds.SECRET_FILE:
            secrets.append(Secret.from_file(text, setting=setting))
    return secrets


def refuse_secret(name: str, value: object, origin: str) -> None:
    """Refuse a value of the Spark conf that holds a key, or a URL with a secret part.

    Raises:
        SettingsError: it holds one; the message names the setting that takes a file instead.

    """
    given: dict[str, Any] = {name: value}
    for setting, kind, text, instead in _declared_texts(Settings(**given)):
        is_url = kind is Holds.URL and bool(secret_parts(text))
        if kind is Holds.KEY or is_url or (kind is Holds.ADDRESS and "@" in text):
            raise SettingsError(
                f"setting {setting!r} from {origin} holds a secret, and event logs show the "
                f"Spark conf: {instead}"
            )


def secret_parts(value: str) -> set[str]:
    """The texts to hide: a key itself; the secret parts of a URL, also decoded.

    Of headers the values that their names call secret, or that are random, as written and decoded,
    with and without a scheme such as ``Bearer``.
    """
    with suppress(ValueError):
        parse_headers(value)
        # It may also be a key that only looks like a header.
        return {value}.union(*map(_secret_of_header, value.replace("\n", ",").split(",")))
    if "://" not in value:
        return {value}
    return _secret_of_url(value)


def _secret_of_header(header: str) -> set[str]:
    name, _, value = map(str.strip, header.partition("="))
    texts = {value, unquote(value)}
    if names_secret(name) or any(map(is_random, texts)):
        return {form for text in texts for form in (text, text.partition(" ")[2]) if form}
    return _secret_of_url(unquote(value)) if "://" in unquote(value) else set()


def _secret_of_url(url: str) -> set[str]:
    try:
        parts = secrets_of_url(url)
    except ValueError:
        return {url}
    return {form for part in parts for form in (part, unquote(part))}


# -- redacting --------------------------------------------------------------------------------

NAMES = "spark.redaction.regex"
"""Hides the value of a setting whose name matches. Our own names include Spark's default."""
OPTIONS = "spark.sql.redaction.options.regex"
"""The same for options of data sources."""
OPTIONS_DEFAULT = "(?i)url"
TEXTS = ("spark.redaction.string.regex", "spark.sql.redaction.string.regex")
"""Hide every match in any text."""

Conf = Callable[[str], str | None]
Redact = Callable[[str], str]
ERROR_CLASS = "error_class"
"""The evidence that is kept when everything else must be withheld."""
KEPT_TEXTS = 4096


class EvaluationRedactor:
    """Calling it with an evaluation returns that evaluation without secrets.

    It recognizes secrets by shape, by the patterns of the settings, by our own keys as last read
    by ``refresh``, and after ``honour`` by Spark's own redaction settings.

    Raises:
        SettingsError: a pattern is not a regular expression, or a secret's file cannot be read.

    """

    def __init__(self, settings: Settings) -> None:
        for position, pattern in enumerate(settings.redact_patterns):
            if problem := unusable(pattern):
                # The pattern is not shown: it may contain the secret that it hides.
                raise settings.error(f"setting 'redact_patterns', at [{position}]: {problem}")
        self._patterns = settings.redact_patterns
        with as_settings_error(settings):
            self._secrets = own_secrets(settings)
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
    """Redact every text of all findings and of the health; labels stay, since they identify."""
    findings = tuple(_finding(finding, text) for finding in evaluation.findings)
    health = {
        label: replace(health, reason=text(health.reason)) if health.reason else health
        for label, health in evaluation.health.items()
    }
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
