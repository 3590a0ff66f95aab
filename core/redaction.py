"""Removes secrets from text before it is stored or sent. Pure.

Exceptions of streaming queries contain connection strings, options and whole Python tracebacks.
Text is redacted by the shapes of secrets when it enters, and again when it leaves, by what the
session and our own settings declare as secret.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import lru_cache

from .own_secrets import secret_variants
from .redaction_names import hide_values
from .redaction_shapes import AFTER_NAMES, PATH_NAME, PREFIXED, SECRET_NAME, WHOLE

REDACTED = "[redacted]"
WITHHELD = "[withheld]"
"""Replaces a text that could not be redacted."""
MAX_CHARACTERS = 64 * 1024
"""Longer text is cut before redaction."""
MAX_WITH_PATTERNS = 8 * 1024
"""The limit when foreign patterns apply, which may take quadratic time."""
CUT_CHARACTERS = 4096
"""A cut may leave part of a secret, too short to recognise, so this much more is removed."""
_REMEMBERED = 1024
_REMEMBERED_CHARACTERS = 1024
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_EVERY_NAME = re.compile("")


class Redactor:
    """Finds secrets by shape, by name, by our own values and by foreign patterns.

    ``secrets`` are matched exactly, in every encoding. ``patterns`` are regular expressions for
    text to hide. A name that matches one of ``key_patterns`` has its value hidden; so does a name
    that matches one of ``option_patterns`` and is written as an option (``url=...``,
    ``url -> ...``).

    An ``unusable`` pattern hides everything that it could match: a name pattern every value, a
    text pattern the whole text.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        patterns: Iterable[str] = (),
        key_patterns: Iterable[str] = (),
        option_patterns: Iterable[str] = (),
    ) -> None:
        self._own = tuple(form for form in secret_variants(secrets) if form not in REDACTED)
        texts = [_usable(pattern) for pattern in patterns]
        self._patterns = [pattern for pattern in texts if pattern is not None]
        self._blind = None in texts
        self._names = [_usable(pattern) or _EVERY_NAME for pattern in key_patterns]
        self._options = [_usable(pattern) or _EVERY_NAME for pattern in option_patterns]
        foreign = self._patterns or self._names or self._options
        self._max = MAX_WITH_PATTERNS if foreign else MAX_CHARACTERS
        self._remembered = lru_cache(_REMEMBERED)(self._redact)

    def text(self, text: str) -> str:
        """Replace every secret; ``WITHHELD`` when that fails. A second call changes nothing."""
        try:
            short = len(text) <= _REMEMBERED_CHARACTERS
            return self._remembered(text) if short else self._redact(text)
        except Exception:  # noqa: BLE001 - unredacted text must not leave after any error
            return WITHHELD

    def _redact(self, text: str) -> str:
        if self._blind:
            return WITHHELD if text else ""
        clean = self._replace(text[: self._max])
        if max(len(text), len(clean)) > self._max:
            clean = self._replace(self._before_cut(clean)) or WITHHELD
        return clean

    def _before_cut(self, clean: str) -> str:
        """The part of a redacted text that a secret at the cut cannot reach.

        Up to the first replacement, characters stand where they stood in the original text.
        """
        unchanged = clean.partition(REDACTED)[0][: self._max - CUT_CHARACTERS]
        return max(clean[: self._max][:-CUT_CHARACTERS], unchanged, key=len)

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
            # Keep what is already hidden, even if a pattern such as \w+ matches it.
            text = REDACTED.join(pattern.sub(_hide, part) for part in text.split(REDACTED))
        return text

    def _is_secret(self, name: str, is_option: bool) -> bool:
        if SECRET_NAME.search(name) and not PATH_NAME.search(name):
            return True
        if any(one.search(name) for one in self._names):
            return True
        return is_option and any(one.search(name) for one in self._options)


def unusable(pattern: str) -> str:
    """Why a regular expression cannot be used; empty if it can.

    Python cannot compile it, or reads it differently from Java. The answer does not contain the
    pattern, which may itself contain the secret.
    """
    try:
        _compiled(pattern)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return f"not a regular expression Python can use: {error}"
    return ""


def redact(text: str) -> str:
    """Replace every secret of a known shape or name; a second call changes nothing."""
    return _BY_SHAPE.text(text)


def _usable(pattern: str) -> re.Pattern[str] | None:
    return None if unusable(pattern) else _compiled(pattern)


def _compiled(pattern: str) -> re.Pattern[str]:
    # Java allows flags in the middle; applied to the whole pattern they hide more, never less.
    flags = "".join(sorted(set("".join(_FLAGS.findall(pattern))) & set("ims")))
    plain = _FLAGS.sub("", pattern)
    with warnings.catch_warnings():
        # Java's [a-z&&[^x]] means another set in Python, which only warns.
        warnings.simplefilter("error")
        return re.compile(f"(?{flags}:{plain})" if flags else plain)


def _hide(match: re.Match[str]) -> str:
    return REDACTED if match.group() else ""


_BY_SHAPE = Redactor()
