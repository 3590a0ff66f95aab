"""The forms in which our own secrets may appear in a text, for exact matches. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

MIN_CHARACTERS = 4
"""Anything shorter would be found in ordinary words."""
_RANDOM_CHARACTERS = 8
_BASE64_URL = str.maketrans("+/", "-_")


def secret_variants(secrets: Iterable[str]) -> tuple[str, ...]:
    """Every form of every secret, the longest first: plain, escaped, URL-encoded, base64."""
    found: set[str] = set()
    for secret in secrets:
        plain = secret.strip()
        if len(plain) >= MIN_CHARACTERS:
            found |= _forms(plain)
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def secrets_of_url(url: str) -> tuple[str, ...]:
    """The secret parts of a receiver's URL: userinfo, query values, path, its random segments.

    A path of one plain word, ``/alerts``, is not secret: ordinary text may contain it.

    Raises:
        ValueError: the text is not a URL.

    """
    parts = urlsplit(url)
    steps = [step for step in parts.path.split("/") if step]
    random = [step for step in steps if _is_random(step)]
    found = [parts.username or "", parts.password or "", *random]
    found += [value for _, value in parse_qsl(parts.query)]
    if random or len(steps) > 1:
        found.append(parts.path)
    return tuple(secret for secret in found if len(secret) >= MIN_CHARACTERS)


def _is_random(step: str) -> bool:
    return len(step) >= _RANDOM_CHARACTERS and any(one.isdigit() for one in step)


def _forms(plain: str) -> set[str]:
    encoded = {quote(plain), quote(plain, safe=""), quote_plus(plain)}
    encoded |= {_lower_escapes(form) for form in encoded}
    escaped = {json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
    base64 = {_base64(plain.encode("utf-8", "replace"), shift) for shift in range(3)}
    base64 |= {form.translate(_BASE64_URL) for form in base64}
    return {plain} | encoded | escaped | {form for form in base64 if len(form) >= MIN_CHARACTERS}


def _lower_escapes(encoded: str) -> str:
    """Lower-case the percent escapes, which may be written as %2F or %2f."""
    first, *others = encoded.split("%")
    return "%".join([first, *(other[:2].lower() + other[2:] for other in others)])


def _base64(plain: bytes, shift: int) -> str:
    """The base64 characters that encode only ``plain``, which starts at byte ``shift``."""
    encoded = b64encode(bytes(shift) + plain).decode()
    begin = -(-shift * 8 // 6)
    return encoded[begin : (shift + len(plain)) * 8 // 6]
