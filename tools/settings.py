"""``python -m tools.settings``: writes the tables of docs/settings.md from the declarations."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import get_type_hints

import msgspec

from querypulse.alerting.policy import LimitSettings
from querypulse.settings.allowed import allowed
from querypulse.settings.settings import QuerySettings, Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
EVERYDAY = (
    *("app_name", "labels", "expected_queries", "queries"),
    *("pagerduty_routing_key_file", "alertmanager_urls", "slack_webhook_url_file", "webhook_url"),
    *("external_url", "spool_dir"),
)
"""What most jobs set; the page has them first."""
LIMITS = re.compile(r"(?<=Allowed there are\n).*(?=, and$)", re.MULTILINE)


def page(text: str) -> str:
    """The page with its tables, and its list of limits, written again.

    A table's title is the comment before its settings in the record.

    Raises:
        KeyError: there is a table without settings, or settings without a table.

    """
    rows = {name: (group, row) for name, group, row in (*_rows(LimitSettings), *_rows(Settings))}
    tables: defaultdict[str, list[str]] = defaultdict(list)
    tables["Everyday"] = [rows.pop(name)[1] for name in EVERYDAY]
    for group, row in rows.values():
        tables[group].append(row)
    tables.default_factory = None
    lines = list[str]()
    title = ""
    for line in LIMITS.sub(_limits(), text).splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        if not line.startswith("| `"):
            lines.append(line)
        if line.startswith("|---"):
            lines += tables.pop(title)
    if tables:
        raise KeyError(*tables)
    return "\n".join(lines) + "\n"


def _limits() -> str:
    of_queries = {field.name for field in msgspec.structs.fields(QuerySettings)}
    limits = sorted(of_queries & set(LimitSettings.__struct_fields__))
    return ", ".join(f"`{name}`" for name in limits)


def _rows(record: type[msgspec.Struct]) -> Iterator[tuple[str, str, str]]:
    """Name, group and row of each setting that the record declares, from its source."""
    source = textwrap.dedent(inspect.getsource(record))
    (declaration,) = ast.parse(source).body
    lines = source.splitlines()
    group = ""
    body = declaration.body if isinstance(declaration, ast.ClassDef) else []
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            above = lines[field.lineno - 2].strip()
            group = above.removeprefix("# ") if above.startswith("# ") else group
            purpose = " ".join(str(ast.literal_eval(text.value)).split())
            name = ast.unparse(field.target)
            yield name, group, _row(name, purpose)


def _row(name: str, purpose: str) -> str:
    kind = get_type_hints(Settings, include_extras=True)[name]
    meaning, _, example = purpose.partition(" Example: ")
    if not example:
        example = "`true`" if kind is bool else default(name)
    return f"| `{name}` | {default(name)} | {allowed(kind)} | {meaning} | {example} |"


def default(name: str) -> str:
    """A setting's default, as TOML writes it; "none" where there is none."""
    field = next(entry for entry in msgspec.structs.fields(Settings) if entry.name == name)
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if value is None or value in ((), {}):
        return "none"
    shown = msgspec.json.encode(value).decode().strip('"')
    return f"`{shown.removesuffix('.0')}`"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
