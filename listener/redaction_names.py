"""Takes the values of secret names out of text: ``password=...``, in whatever language. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

_QUOTE = r"(?:\\{0,16}[\"']|&(?:quot|apos|\#3[49]);)"
_SPACE = r"(?:\s|\\n)"
# One name, then what parts it from its value. Tied to the start of a word, it is tried once
# for each. Group 2: as options are printed; a plain colon may be prose as well.
_NAME = re.compile(
    rf"""(?x) (?<![\w.-]) ([\w.-]+) (?:
    (
        {_QUOTE} \s{{0,3}} (?: =>? | : | -> ) \s{{0,3}}
      | {_QUOTE} \s{{0,3}} , \s{{0,9}} {_QUOTE} value {_QUOTE} \s? : \s{{0,3}}
      | {_QUOTE} \s{{0,3}} , (?= \s{{0,3}} {_QUOTE} ) \s{{0,3}}
      | {_SPACE}{{1,20}} value : \s{{0,3}}
      | \s{{0,3}} (?: =>? | -> ) \s{{0,3}}
      | %3[DdAa]
      | >
      | </name> {_SPACE}{{0,9}} <value>
    )
    | \s{{0,3}} : \s{{0,3}} )"""
)
# What opens a value, such as the quote in b"..." or Some("..."), stays, and so does its end.
_OPENING = re.compile(
    r"(?:[\w.]{0,40}[(\[]\s?){0,2}[a-zA-Z]{0,2}(?:(\\*)([\"'])|&(?:quot|apos|#3[49]);)"
)
_INSIDE = {
    ("", '"'): re.compile(r'(?s)(?:[^"\\]|\\.)+'),
    ("", "'"): re.compile(r"(?s)(?:[^'\\]|\\.)+"),
    ("\\", '"'): re.compile(r'[^"\\]+(?:\\+[^"\\]+)*'),
    ("\\", "'"): re.compile(r"[^'\\]+(?:\\+[^'\\]+)*"),
    ("", ""): re.compile("[^&]+"),
}
"""By what escapes the quote, and which it is; none is one of HTML."""
_BARE = re.compile(r"[^\s;,&\"'{}][^\s;,&\"'}]*")

IsSecret = Callable[[str, bool], bool]
"""Whether a name's value is one; True when it is written as options are."""


def hide_values(text: str, is_secret: IsSecret, hidden: str) -> str:
    """Replace the value of each secret name, leaving its quotes, by ``hidden``."""
    kept: list[str] = []
    done = at = 0
    while (name := _NAME.search(text, at)) is not None:
        at = name.end()
        if is_secret(name.group(1), name.group(2) is not None):
            begin, end = _value(text, at)
            if end > begin:
                kept += [text[done:begin], hidden]
                done = at = end
    return "".join([*kept, text[done:]])


def _value(text: str, at: int) -> tuple[int, int]:
    """Where the value at ``at`` begins and ends; nowhere when there is none."""
    opening = _OPENING.match(text, at)
    if opening is None:
        value = _BARE.match(text, at)
    else:
        escape, quote = opening.group(1) or "", opening.group(2) or ""
        value = _INSIDE[escape[:1], quote].match(text, opening.end())
    return value.span() if value is not None else (at, at)
