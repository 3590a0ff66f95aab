"""``python -m tools.settings``: writes the tables of docs/settings.md from the declarations."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from querypulse.alerting.policy import LimitSettings
from querypulse.settings.settings import QuerySettings, Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
EVERYDAY = (
    *("app_name", "labels", "expected_queries", "queries"),
    *("pagerduty_routing_key_file", "alertmanager_urls", "slack_webhook_url_file", "webhook_url"),
    *("external_url", "spool_dir"),
)
"""What most jobs set; the page has them first."""
SIGNS = (("gt", "above {}"), ("ge", "{} or more"), ("lt", "below {}"), ("le", "at most {}"))
LIMITS = re.compile(r"(?<=Allowed there are\n).*(?=, and$)", re.MULTILINE)
WORDS = {bool: "`true`, `false`", str: "text", int: "a whole number", float: "a number"}


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


def allowed(kind: Any) -> str:
    """What the record allows, in words."""
    if get_origin(kind) in (Union, types.UnionType):
        return allowed(next(part for part in get_args(kind) if part is not types.NoneType))
    if get_origin(kind) is Annotated:
        plain, meta = get_args(kind)
        return ", ".join(filter(None, [WORDS[plain], _bounds(meta)]))
    if get_origin(kind) is tuple:
        return "a list of texts" if _allowed_in(kind) == WORDS[str] else "a list of tables"
    return "a table" if get_origin(kind) is dict else WORDS[kind]


def _allowed_in(kind: Any) -> str:
    """What the record allows as an entry of a list."""
    inner = get_args(kind)[0]
    return allowed(inner) if inner is str or get_origin(inner) is Annotated else ""


def _bounds(meta: Meta) -> str:
    bounds = ((words, getattr(meta, sign)) for sign, words in SIGNS)
    return ", ".join(words.format(bound) for words, bound in bounds if bound is not None)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
