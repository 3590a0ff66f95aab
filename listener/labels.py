"""The text that identifies a query to people. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from hashlib import sha256

UNNAMED = "unnamed"
"""The query label of alerts about queries without a name."""
RESERVED = frozenset({"*", UNNAMED})
"""Labels that alerts use for more than one query."""
LABEL_CHARACTERS = 100
HASH_CHARACTERS = 12
ID_CHARACTERS = 8

_OF_NAMESAKE = re.compile(rf"(?P<base>.+)-[0-9a-f]{{{ID_CHARACTERS}}}(-\d+)?", re.DOTALL)


def base_label(name: str | None, query_id: str = "") -> str:
    """A query's label as long as no other query has it: bounded in length."""
    text = name or query_id[:ID_CHARACTERS]
    if len(text) <= LABEL_CHARACTERS:
        return text
    # Long names often differ only at the end.
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:HASH_CHARACTERS]
    return f"{text[: LABEL_CHARACTERS - HASH_CHARACTERS - 1]}-{digest}"


def free_label(name: str | None, query_id: str, taken: Collection[str]) -> str:
    """The base label, with a suffix if it is taken."""
    base = base_label(name, query_id)
    if base not in taken:
        return base
    label = f"{base}-{query_id[:ID_CHARACTERS]}"
    number = 2
    while label in taken:
        label = f"{base}-{query_id[:ID_CHARACTERS]}-{number}"
        number += 1
    return label


def is_of_namesake(label: str, name: str | None) -> bool:
    """Whether a query of this name gets such a label: another query has the base label."""
    match = _OF_NAMESAKE.fullmatch(label)
    return name is not None and match is not None and match["base"] == base_label(name)
