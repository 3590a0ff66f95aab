"""Finds the table that an exception's message names.

Delta Lake 4.4 names the table of a conflict (``delta-error-classes.json``): "a concurrent MERGE
added data to table spark_catalog.fleet.alerts committed at version 7". A table without a catalog
name is ``delta.`file:/path```. Spark quotes names: "The table or view `a`.`b` cannot be found".
"""

from __future__ import annotations

import re

_PART = r"(?:`[^`\n]{1,300}`|[\w-]{1,100})"
# A single unquoted word may be any word: "the Delta table has been changed".
_NAMED = re.compile(rf"\b(?:[Tt]able|view) ({_PART}(?:\.{_PART}){{1,4}}|`[^`\n]{{1,300}}`)")


def table_from_error(message: str) -> str:
    """The first table in the message, as written there; empty if there is none."""
    found = _NAMED.search(message)
    return found.group(1) if found is not None else ""
