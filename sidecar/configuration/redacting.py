"""Takes secrets, our own included, out of what was judged, before anything tells of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...alerting.evaluate import Evaluation
from ...alerting.redacted import redacted
from ...listener.redaction import Redactor, unusable
from ...listener.spark_redaction import NAMES, OPTIONS, TEXTS, session_redactor
from .own_values import own_secrets, secret_parts
from .settings import Settings, SettingsError

Conf = Callable[[str], str | None]


class Redacting:
    """Called with a judgement, answers with one that holds no secret.

    It knows secrets by their shapes, by the patterns of the settings, by our own keys as
    ``refresh`` has read them last, and once ``honour`` was called by what Spark wants hidden.

    Raises:
        SettingsError: a pattern is no regular expression, or a secret's file cannot be read.

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
        self._values: tuple[str, ...] = ()
        self._redactor = self._renewed()

    def honour(self, conf: Conf) -> None:
        """Hide what a Spark session wants hidden; ``conf`` gives its settings by name."""
        self._conf = {name: conf(name) for name in (NAMES, OPTIONS, *TEXTS)}
        self._redactor = self._renewed()

    def __call__(self, evaluation: Evaluation) -> Evaluation:
        """Redact all texts of findings and verdicts; touches no file."""
        return redacted(evaluation, self._redactor)

    @property
    def reads_files(self) -> bool:
        """Whether a key comes from a file."""
        return any(secret.is_from_file for secret in self._secrets)

    def refresh(self) -> None:
        """Read our own keys again, for files may change; for a thread of its own."""
        values = tuple(secret.reveal() for secret in self._secrets)
        if values != self._values:
            self._redactor = self._renewed()

    def text(self, text: str) -> str:
        """Redact one text; touches no file, so any thread may call it."""
        return self._redactor.text(text)

    def _renewed(self) -> Redactor:
        self._values = tuple(secret.known for secret in self._secrets)
        parts = [part for value in self._values for part in secret_parts(value)]
        return session_redactor(self._conf.get, secrets=parts, patterns=self._patterns)


def _require_usable(patterns: Sequence[str]) -> None:
    for position, pattern in enumerate(patterns):
        problem = unusable(pattern)
        if problem:
            # Not shown: it may hold what it is to hide.
            raise SettingsError(f"setting 'redact_patterns', at [{position}]: {problem}")
