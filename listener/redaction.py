"""Takes secrets out of text before anything keeps it or sends it. Pure.

Exceptions of streaming queries carry connection strings, options and whole Python
tracebacks. They are redacted where they enter, by the shapes of secrets; what leaves is
redacted once more, by what a session and our own settings name as secret.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import lru_cache

from .own_secrets import forms_of
from .redaction_names import hide_values
from .redaction_shapes import AFTER_NAMES, PATH_NAME, PREFIXED, SECRET_NAME, WHOLE

REDACTED = "[redacted]"
WITHHELD = "[withheld]"
"""Stands for a text that could not be redacted."""
MAX_CHARACTERS = 64 * 1024
"""Longer text is cut before redaction."""
MAX_WITH_PATTERNS = 8 * 1024
"""The same where patterns of others are applied: they may take time by the square of it."""
CUT_CHARACTERS = 4096
"""What may be half a secret at a cut, too little of it to be known as one."""
_REMEMBERED = 1024
_REMEMBERED_CHARACTERS = 1024
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_EVERY_NAME = re.compile("")


class Redactor:
    """Knows secrets by shape, by name, by our own values, and by patterns of others.

    ``secrets`` are matched exactly, in every encoding. ``patterns`` are regular expressions of
    what to hide. Where one of ``key_patterns`` is found in a name, its value is hidden;
    ``option_patterns`` too, where it is written as options are (``url=...``, ``url -> ...``).

    A pattern that is ``unusable`` hides all it could: one of names every value, one of text
    the whole text.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        patterns: Iterable[str] = (),
        key_patterns: Iterable[str] = (),
        option_patterns: Iterable[str] = (),
    ) -> None:
        self._own = tuple(form for form in forms_of(secrets) if form not in REDACTED)
        texts = [_usable(pattern) for pattern in patterns]
        self._patterns = [pattern for pattern in texts if pattern is not None]
        self._blind = None in texts
        self._names = [_usable(pattern) or _EVERY_NAME for pattern in key_patterns]
        self._options = [_usable(pattern) or _EVERY_NAME for pattern in option_patterns]
        foreign = self._patterns or self._names or self._options
        self._max = MAX_WITH_PATTERNS if foreign else MAX_CHARACTERS
        self._remembered = lru_cache(_REMEMBERED)(self._redact)

    def text(self, text: str) -> str:
        """Replace every secret; ``WITHHELD`` when that fails. Twice changes nothing more."""
        try:
            short = len(text) <= _REMEMBERED_CHARACTERS
            return self._remembered(text) if short else self._redact(text)
        except Exception:  # noqa: BLE001 - whatever went wrong, unredacted text must not leave
            return WITHHELD

    def _redact(self, text: str) -> str:
        if self._blind:
            return WITHHELD if text else ""
        clean = self._replace(text[: self._max])
        if max(len(text), len(clean)) > self._max:
            clean = self._replace(clean[: self._max][:-CUT_CHARACTERS])
        return clean

    def _replace(self, text: str) -> str:
        for secret in self._own:
            text = text.replace(secret, REDACTED)
        for pattern in WHOLE:
            text = pattern.sub(REDACTED, text)
        for pattern in PREFIXED:
            text = pattern.sub(rf"\g<1>{REDACTED}", text)
        if self._names or self._options or SECRET_NAME.search(text):
            text = hide_values(text, self._is_secret, REDACTED)
        for pattern in AFTER_NAMES:
            text = pattern.sub(rf"\g<1>{REDACTED}", text)
        for pattern in self._patterns:
            # What is hidden already stays as it is, though a pattern such as \w+ matches it.
            text = REDACTED.join(pattern.sub(_hide, part) for part in text.split(REDACTED))
        return text

    def _is_secret(self, name: str, is_option: bool) -> bool:
        if SECRET_NAME.search(name) and not PATH_NAME.search(name):
            return True
        if any(one.search(name) for one in self._names):
            return True
        return is_option and any(one.search(name) for one in self._options)


def unusable(pattern: str) -> str:
    """Why a regular expression cannot be used, empty if it can.

    Python cannot read it, or reads it differently than Java would. The answer does not show
    the pattern, which may hold what it is to hide.
    """
    try:
        _compiled(pattern)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return f"not a regular expression Python can use: {error}"
    return ""


def redact(text: str) -> str:
    """Replace every secret of a known shape or name; twice changes nothing more."""
    return _BY_SHAPE.text(text)


def _usable(pattern: str) -> re.Pattern[str] | None:
    return None if unusable(pattern) else _compiled(pattern)


def _compiled(pattern: str) -> re.Pattern[str]:
    # Java lets flags begin in the middle; for all of it they hide more, never less.
    flags = "".join(sorted(set("".join(_FLAGS.findall(pattern))) & set("ims")))
    plain = _FLAGS.sub("", pattern)
    with warnings.catch_warnings():
        # Java's [a-z&&[^x]] is another set to Python, which only warns.
        warnings.simplefilter("error")
        return re.compile(f"(?{flags}:{plain})" if flags else plain)


def _hide(match: re.Match[str]) -> str:
    return REDACTED if match.group() else ""


_BY_SHAPE = Redactor()
