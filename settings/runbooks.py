"""The runbooks in the package: whole, as the driver serves them, and their next steps only."""

from __future__ import annotations

import re
from importlib.resources import files

from .. import dashboards

_FOLDER = "runbooks"
_INDEX = "README"
_NAME = re.compile(r"[A-Za-z]{1,100}")
_STEPS = re.compile(r"^## Next steps\n\n(.*?)\n\n## ", re.MULTILINE | re.DOTALL)


def runbook(alertname: str) -> str | None:
    """The runbook of an alert, as Markdown; None if there is none.

    Runbooks link to each other as files, so a name may end with ``.md``.
    """
    alertname = alertname.removesuffix(".md")
    if _NAME.fullmatch(alertname) is None or alertname == _INDEX:
        return None
    file = files(dashboards) / _FOLDER / f"{alertname}.md"
    return file.read_text("utf-8") if file.is_file() else None


def next_steps() -> dict[str, str]:
    """The section "Next steps" of each runbook, by alert name."""
    names = [file.name.removesuffix(".md") for file in (files(dashboards) / _FOLDER).iterdir()]
    found = {name: _STEPS.search(runbook(name) or "") for name in sorted(names)}
    return {name: match.group(1) for name, match in found.items() if match is not None}
