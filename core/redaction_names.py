"""Removes the values of secret names from text: ``password=...``, in any notation. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_QUOTE = r"(?:\\{0,16}[\"']|&(?:quot|apos|\#3[49]);)"
_SPACE = r"(?:\s|\\{1,4}n)"
_CALL = rf"[\w.]{{0,40}}[(\[]{_SPACE}{{0,40}}"
# A name, then the separator before its value. Anchored to the start of a word, it is tried once
# per word. Group 2: a separator of options; a plain colon may also be prose.
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
      | (?<= [Aa]uth) (?= \( {_SPACE}{{0,40}} [a-zA-Z]{{0,2}} {_QUOTE} )
    )
    | \s{{0,3}} : \s{{0,3}} )"""
)
# What opens a value, such as the quote in b"..." or Some("..."), is kept, and so is its end.
_OPENING = re.compile(rf"(?:{_CALL}){{0,2}}[a-zA-Z]{{0,2}}(?:(\\*)([\"'])|&(?:quot|apos|#3[49]);)")
_INSIDE = {
    ("", '"'): re.compile(r'(?s)(?:[^"\\]|\\.)*'),
    ("", "'"): re.compile(r"(?s)(?:[^'\\]|\\.)*"),
    ("\\", '"'): re.compile(r'[^"\\]*(?:\\+[^"\\]+)*'),
    ("\\", "'"): re.compile(r"[^'\\]*(?:\\+[^'\\]+)*"),
    ("", ""): re.compile("[^&]*"),
}
"""By the quote's escape and the quote; an empty quote is an HTML entity."""
# A quote in the middle of a word, as in it's, does not end the value.
_WORD = re.compile(r"[^\s;,&\"'{}][^\s;,&\"'}]*(?:[\"'](?=\w)[^\s;,&\"'}]+)*")
_HIDDEN = re.compile(r"[^\s;,&\"'}\\]+")
_PIECES = re.compile(rf"{_WORD.pattern}(?:;+[^\s;,&\"'{{}}=]+(?=[\s;,&\"'}}]|\Z))*")
"""A word; text after a semicolon belongs to it, unless it is ``name=``."""
_UNQUOTED = re.compile(rf"(?x) (?! [\s;{{] | (?: {_CALL} [a-zA-Z]{{0,2}} )? {_QUOTE} )")
_PROPERTY = re.compile(
    r"""(?x) (?: (?! :// | ["'][\s,)\]}] | &(?:quot|apos|\#3[49]); ) [^\r\n] ){1,256}?
    (?= ; \s? [\w.-]{1,64} (?: [ ] [\w.-]{1,64} ){0,2} = )"""
)
"""A value in a connection string, which only the next property ends."""
_BRACED = re.compile(r"(?<==\{)(?:[^}\r\n]+|\}\}(?=[^}\r\n]*\}))+")
"""SQL Server's quotes for a value: ``{...}``, in which ``}}`` is a brace."""
_NOTHING = re.compile(r"(?:None|null)[)\]]{0,9}(?=[\s;,&}]|\Z)")
_ITEM = re.compile(r"(?:\[\w*\]|[^\s;,&\"'{}()\[\]])+")
_LIST = re.compile(r"[\w.]{0,40}[(\[](?:\[\w*\]|[^()\[\]])*")
"""The start of a list or of a call, up to the end of its first item."""
_COMMA = re.compile(
    rf"(?x) {_QUOTE}? \s{{0,3}} , {_SPACE}{{0,40}} (?! [\w.-]{{1,64}} \s{{0,3}} (?: [:=] | -> ) )"
)
"""The separator of two items, if the second has no name of its own."""

IsSecret = Callable[[str, bool], bool]
"""Whether the value of a name is secret; the flag is True for option notation."""


def hide_values(text: str, is_secret: IsSecret, hidden: str) -> str:
    """Replace the value of each secret name by ``hidden`` and keep its quotes."""
    kept: list[str] = []
    done = at = 0
    while (name := _NAME.search(text, at)) is not None:
        at = name.end()
        counts = name.end(1) > done or _is_chained(name, done)
        if counts and is_secret(name.group(1), name.group(2) is not None):
            for begin, end in _values(name, hidden):
                if begin > name.end():
                    at = end
                if end > max(begin, done):
                    kept += [text[done:begin], hidden] if begin > done else []
                    done = end
    return "".join([*kept, text[done:]])


def _is_chained(name: re.Match[str], done: int) -> bool:
    """Whether a name in a hidden value has a value that ends later: ``auth: token="a b"``."""
    text, at = name.string, name.end()
    is_quote = text[name.end(1)] in "\"'\\&"
    return not is_quote and (at >= done or _OPENING.match(text, at) is not None)


def _values(name: re.Match[str], hidden: str) -> Iterator[tuple[int, int]]:
    """The start and end of the value of ``name``, or of each item if it is a list."""
    text = name.string
    begin, end = _value(name, hidden)
    yield begin, end
    is_call = not {"(", "["}.isdisjoint(text[name.end() : begin])
    if is_call or _LIST.fullmatch(text, begin, end) is not None:
        while (comma := _COMMA.match(text, end)) is not None:
            item = _quoted(text, comma.end()) or _ITEM.match(text, comma.end())
            if item is None:
                break
            begin, end = item.span()
            yield begin, end


def _value(name: re.Match[str], hidden: str) -> tuple[int, int]:
    """The start and end of the value or of a list's first item; empty at ``name`` if none."""
    text, at = name.string, name.end()
    if text.startswith(hidden, at):
        value = _HIDDEN.match(text, at)
    elif _NOTHING.match(text, at) is not None:
        value = None
    elif _is_property(name):
        value = _PROPERTY.match(text, at) or _PIECES.match(text, at)
    else:
        value = _BRACED.match(text, at + 1) or _quoted(text, at) or _PIECES.match(text, at)
    return value.span() if value is not None else (at, at)


def _quoted(text: str, at: int) -> re.Match[str] | None:
    opening = _OPENING.match(text, at)
    if opening is None:
        return None
    escape, quote = opening.group(1) or "", opening.group(2) or ""
    return _INSIDE[escape[:1], quote].match(text, opening.end())


def _is_property(name: re.Match[str]) -> bool:
    """Whether the notation is that of a connection string: ``;name=value``, without quotes."""
    text, begin, at = name.string, name.start(), name.end()
    follows = ";" in text[max(0, begin - 2) : begin] and text[at - 1] == "="
    return follows and _UNQUOTED.match(text, at) is not None
