"""``python -m tools.settings [FILE]``: writes docs/settings.md from the declarations."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from querypulse.alerting.policy import LimitSettings
from querypulse.settings.settings import QuerySettings, Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
GROUPS = (
    "The job",
    "Receivers",
    "Alerts",
    "Stalls and slow batches",
    "Lag, input and data loss",
    "The HTTP server",
    "Pushing metrics",
    "Connections to receivers",
)
"""In the order of the page; in the records, the comments before their settings."""
EVERYDAY = (
    *("app_name", "labels", "expected_queries", "queries"),
    *("pagerduty_routing_key_file", "alertmanager_urls", "slack_webhook_url_file", "webhook_url"),
    *("external_url", "spool_dir"),
)
"""What most jobs set; the page has them first."""

HEAD = """\
# Settings

Written by `python -m tools.settings` from the settings record; `make dashboards` writes it again.

A setting has one name everywhere. Its value comes from the first of these that sets it:

1. an argument: `attach(spark, stall_floor_seconds=30)`
2. the environment: `QUERYPULSE_STALL_FLOOR_SECONDS=30`
3. the Spark conf: `spark.querypulse.stall_floor_seconds=30`
4. the TOML file that `QUERYPULSE_CONFIG` names: `stall_floor_seconds = 30`

An argument, a line of the Spark conf or a key of the file that is unknown or not allowed is an
error before anything runs. The message names the setting, its source and what is allowed. An
environment variable with an unknown name, or with a value that the tables below do not allow, does
not stop a job: it is logged once and ignored, and `querypulse check` refuses it.

A value that is allowed but cannot be used, such as a secret file that does not exist, is an error
from every source. `attach` raises each of these errors as `SettingsError`. Under `querypulse run`,
the launcher and auto-attach, they are a warning in the log, and the job continues unmonitored.

`querypulse check` prints the settings in force and where each came from. It exits with 0 if they
can be used, otherwise with 2. Like `querypulse test-alert`, it reads the environment and the file
that `QUERYPULSE_CONFIG` names, and does not see arguments of `attach` or the Spark conf.

In the environment and the Spark conf, lists and tables are JSON or TOML:
`QUERYPULSE_QUERIES='{"nightly*" = {stall_floor_seconds = 3600}}'`. `expected_queries` and
`alertmanager_urls` may also be words separated by commas, and `redact_patterns` a single pattern.

Secrets, and URLs with a secret part, are refused in the Spark conf, because Spark's event logs show
the conf: use the setting that ends in `_file`. A secret is given as itself or in a file. All times
are in seconds.

## Everyday

"""
ADVANCED = """
## Advanced

Most jobs need none of these.
"""
BY_QUERY = """
## By query

`queries` gives queries whose name matches a pattern (`*`, `?`, `[...]`) other limits than the rest.
If several patterns with the same setting match, the last one counts. Allowed there are
{names}, and

* `ignore = true`: the query has a state and metrics, and never an alert;
* `reads` and `writes`: lists of places that Spark does not show, such as `["delta:/lake/bronze"]`
  ([forms](in-a-job.md#streams-that-feed-streams));
* `heartbeat_url` or `heartbeat_url_file`:
  [requested when such a query commits or completes]({heartbeats}).

```toml
expected_queries = ["bronze", "alert_resolution"]
pagerduty_routing_key_file = "/run/secrets/pagerduty"

[queries."nightly*"]
stall_floor_seconds = 3600
heartbeat_url_file = "/run/secrets/nightly_heartbeat"

[queries."scratch*"]
ignore = true
```
"""
HEARTBEATS = "receivers.md#heartbeat"
SIGNS = (("gt", "above {}"), ("ge", "{} or more"), ("lt", "below {}"), ("le", "at most {}"))
COLUMNS = "| setting | default | allowed | meaning | example |\n|---|---|---|---|---|\n"
WORDS = {bool: "`true`, `false`", str: "text", int: "a whole number", float: "a number"}


def page() -> str:
    """The whole page."""
    of_queries = {field.name for field in msgspec.structs.fields(QuerySettings)}
    limits = sorted(of_queries & set(LimitSettings.__struct_fields__))
    names = ", ".join(f"`{name}`" for name in limits)
    rows = {name: (group, row) for name, group, row in (*_rows(LimitSettings), *_rows(Settings))}
    everyday = "".join(rows.pop(name)[1] for name in EVERYDAY)
    advanced = ADVANCED
    for title in GROUPS:
        if own := "".join(row for group, row in rows.values() if group == title):
            advanced += f"\n### {title}\n\n{COLUMNS}{own}"
    return (
        HEAD + COLUMNS + everyday + advanced + BY_QUERY.format(names=names, heartbeats=HEARTBEATS)
    )


def _rows(record: type[msgspec.Struct]) -> Iterator[tuple[str, str, str]]:
    """Name, group and row of each setting that the record declares, from its source."""
    source = textwrap.dedent(inspect.getsource(record))
    (declaration,) = ast.parse(source).body
    lines, group = source.splitlines(), ""
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
    return f"| `{name}` | {default(name)} | {allowed(kind)} | {meaning} | {example} |\n"


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
    target = Path(sys.argv[1]) if sys.argv[1:] else PAGE
    target.write_text(page(), encoding="utf-8")
