"""Text for people and for receivers: durations, lists, dates, typos, hashes, encodable text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from hashlib import sha256
from typing import Any


def duration(seconds: float) -> str:
    """``95 s``, ``40 min``, ``3 h 20 min``, ``9 d 4 h``: seconds in the largest suitable units.

    A unit is suitable from two of it on. Minutes and smaller units stand alone; hours and days are
    followed by the next smaller unit, unless there is none of it. What is left is cut off. The
    status page (``age`` in ``words.js``) follows the same rule.
    """
    whole = max(0, round(seconds))
    if whole < 2 * 60:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{whole // 60} min"
    if whole < 2 * 86_400:
        return _pair(whole // 60, 60, "h", "min")
    return _pair(whole // 3600, 24, "d", "h")


def exact_duration(seconds: float) -> str:
    """As ``duration``; below two minutes with tenths of a second: ``0.5 s``."""
    return f"{round(seconds, 1):g} s" if seconds < 2 * 60 else duration(seconds)


def _pair(count: int, size: int, unit: str, smaller: str) -> str:
    units, rest = divmod(count, size)
    return f"{units} {unit} {rest} {smaller}" if rest else f"{units} {unit}"


KILO = 1000


def amount(count: float) -> str:
    """``0.5``, ``38``, ``950``, ``1.2 k``, ``38 M``: a count in two digits, or all below 1,000."""
    for size, suffix in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")):
        if count >= 10 * size:
            return f"{count / size:.0f}{suffix}"
        if count >= size:
            return f"{count / size:.2g}{suffix}"
    return f"{count:.2g}"


def size(count: float) -> str:
    """``38 MB``, ``1.2 GB``: bytes in two digits, decimal units."""
    return f"{amount(count)}{'' if count >= KILO else ' '}B"


MAX_NAMES = 10


def listed(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """``a, b and 7 more``: the first ``most`` names and the count of the others."""
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


# -- hosts ------------------------------------------------------------------------------------


HOST = (
    r"^(?:(?![0-9.]+\Z)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?"
    r"|(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\.(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])){3}"
    r"|(?=[^:]*:[^:]*:)[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\Z"
)
"""A host name in ASCII, with ``_`` as networks of containers have it; an address of IPv4, or of
IPv6 without brackets. A name of digits would be read as an address by the system (inet_aton)."""
HOST_WORDS = "a host name or an IP address, without brackets, scheme and port"


# -- utf8 -------------------------------------------------------------------------------------
# Texts that cannot be encoded: Python reads bytes of the environment that are not UTF-8 as lone
# surrogates, and so does JSON. Such a text in a label or a log line would fail much later.


def encodable(text: str) -> str:
    """The text with an escape in place of each lone surrogate."""
    return text.encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """The text in one line, with an escape in place of each character that a terminal obeys."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def digest(text: str, characters: int) -> str:
    """The first hexadecimal ``characters`` of the SHA-256 of a text, which may be any text."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:characters]


def to_json(body: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    """Serialise once: the same bytes are signed, measured and sent.

    Text from a broken exception may contain lone surrogates; they become ``?``, so that an
    annotation never prevents a page.
    """
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def rfc3339(wall: float) -> str:
    """Unix seconds as RFC 3339 in UTC with milliseconds: ``2026-11-21T08:58:49.119Z``."""
    moment = datetime.fromtimestamp(wall, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc(wall: float) -> str:
    """Unix seconds for people: ``2026-11-21 08:58:49 UTC``."""
    return f"{datetime.fromtimestamp(wall, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def suggest(word: str, names: Iterable[str]) -> str:
    """The likely meaning of a typo; empty if there is none."""
    close = difflib.get_close_matches(word, list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def shorten(text: str, limit: int) -> str:
    """At most ``limit`` characters; a cut text ends in an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
