"""Takes secrets out of text before anything keeps it.

Exceptions of streaming queries carry connection strings, options and whole Python
tracebacks. They are redacted where they enter, so no alert, log or page downstream
can leak what it never held.
"""

from __future__ import annotations

import re

REDACTED = "[redacted]"
MAX_CHARACTERS = 64 * 1024
"""Longer text is cut before redaction; quantifiers below are bounded for the same reason."""

_KEY_VALUE = re.compile(
    r"(?i)((?:password|passwd|pwd|secret|token|api[_.-]?key|access[_.-]?key|account[_.-]?key"
    r"|private[_.-]?key|shared[_.-]?access|credential|signature|\bsig)"
    r"[\w.-]{0,80}(?:\\?[\"']\s{0,3},\s{0,3}(?=\\?[\"'])"
    r"|(?:\\?[\"'])?\s{0,3}(?:[=:]|->)\s{0,3}))"
    r"(\\\"[^\"]{0,4096}|\"(?:[^\"\\]|\\.){0,4096}\"?"
    r"|'(?:[^'\\]|\\.){0,4096}'?|[^\s;,&\"'}]{1,4096})"
)
_PLAIN = (
    re.compile(r"(?s)-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY.*?(?:-----END[^-]{0,100}-----|\Z)"),
    re.compile(r"\b(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[\w-]{35}\b"),
    re.compile(r"\bdapi[a-f0-9]{32}(?:-\d)?\b"),
    re.compile(r"\bgh[a-z]_[0-9A-Za-z]{36}\b"),
    re.compile(r"\bxox[a-z]-[\w-]{8,250}"),
    re.compile(r"\bgl(?:sa|c)_[\w=+/-]{8,250}"),
    re.compile(r"hooks\.slack\.com/[\w/-]{1,250}"),
    re.compile(r"\bey[\w-]{8,2000}\.ey[\w-]{8,4000}\.[\w-]{0,1000}"),
)
_PREFIXED = (
    re.compile(r"(?i)\b((?:bearer|basic)\s{1,3})[\w.~+/=-]{8,4096}"),
    re.compile(r"(://[^\s/:@]{0,256}:)[^\s/]{1,256}(?=@)"),
    re.compile(r"(?i)(jdbc:oracle:thin:[\w.$-]{1,128}/)[^\s/@]{1,256}(?=@)"),
)


def redact(text: str) -> str:
    """Replace every secret of a known shape; applying it twice changes nothing more."""
    text = text[:MAX_CHARACTERS]
    for pattern in _PLAIN:
        text = pattern.sub(REDACTED, text)
    for pattern in _PREFIXED:
        text = pattern.sub(rf"\g<1>{REDACTED}", text)
    return _KEY_VALUE.sub(rf"\g<1>{REDACTED}", text)
