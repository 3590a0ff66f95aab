"""The text that identifies a query to people. Pure."""

from __future__ import annotations

from hashlib import sha256

LABEL_CHARACTERS = 100
HASH_CHARACTERS = 12
ID_CHARACTERS = 8


def base_label(name: str | None, query_id: str = "") -> str:
    """A query's label as long as no other query has it: bounded in length."""
    text = name or query_id[:ID_CHARACTERS]
    if len(text) <= LABEL_CHARACTERS:
        return text
    # Long names often differ only at the end.
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:HASH_CHARACTERS]
    return f"{text[: LABEL_CHARACTERS - HASH_CHARACTERS - 1]}-{digest}"
