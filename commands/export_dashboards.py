"""``querypulse dashboards export``: rules, dashboards, runbooks and a stack to try, as files."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import dashboards
from ..core import CommandError
from ..core.files import write_whole
from ..core.text import listed
from ..settings.links import guidance, runbooks_url
from ..settings.loading import load_strictly
from ..settings.settings import DEFAULT_RUNBOOKS

if TYPE_CHECKING:
    # Python 3.14 moved it.
    from importlib.abc import Traversable

FOLDERS = ("alertmanager", "compose", "grafana", "prometheus", "runbooks")
FILE_MODE = 0o644
"""Prometheus and Grafana run as other users."""
NAMED = 5
"""The most differing files that a message names."""
WRITTEN_IN_PART = 1
_SELECTOR = re.compile(r'(\{[^{}]*=~\\"\$(?:instance|app)\\"[^{}]*)\}')
"""A selector of the dashboards' queries, in JSON."""
_PARAMETER = "${instance:queryparam}"
_RUNBOOK_URL = re.compile(r"^( +)runbook_url: .*\n", re.MULTILINE)
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OWN_LABELS = {"alertname", "app", "datasource", "instance", "job", "query", "severity", "state"}


def add_dashboards_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: those of ``export_dashboards``."""
    actions = parser.add_subparsers(metavar="export", required=True)
    export = actions.add_parser("export", help="write all files into a folder")
    export.add_argument("folder", metavar="DIR")
    export.add_argument(
        "--label",
        action="append",
        default=[],
        dest="labels",
        metavar="NAME",
        type=_label,
        help="a label of your scraped targets, such as env: the dashboards select by it; "
        "may be repeated",
    )
    export.add_argument("--force", action="store_true", help="overwrite files that differ")


def export_dashboards(
    environment: Mapping[str, str], folder: str, labels: Sequence[str], *, force: bool
) -> int:
    """Write the files that differ and print their paths; 1 when writing failed half-way.

    Runbook links point to the setting ``runbooks_url``, and alerts of Prometheus link to the
    setting ``dashboard_url``. Dashboards have a variable for each of ``labels``.

    Raises:
        CommandError: existing files differ, or one cannot be read.
        SettingsError: a setting is unknown or not allowed.

    """
    settings = load_strictly({}, environment)
    base = runbooks_url(settings)
    dashboard = guidance(settings).dashboard_url
    target = Path(folder)
    shipped = {target / name: content for name, content in shipped_files(base).items()}
    for path, content in shipped.items():
        if labels and path.suffix == ".json":
            shipped[path] = select_by_labels(content.decode(), labels).encode()
        if dashboard and path.parent == target / "prometheus":
            shipped[path] = link_to_dashboard(content.decode(), dashboard).encode()
    try:
        there = {path: path.read_bytes() for path in shipped if path.exists()}
    except OSError as error:
        raise CommandError(
            f"dashboards export: {error.filename}: {error.strerror}; nothing was written"
        ) from None
    differing = {path: shipped[path] for path in shipped if there.get(path) != shipped[path]}
    names = [path.relative_to(target).as_posix() for path in differing if path in there]
    if names and not force:
        raise CommandError(
            f"dashboards export: these files below {target} differ: {listed(names, NAMED)}; "
            "nothing was written (--force overwrites them)"
        )
    return _write(target, differing, len(shipped))


def shipped_files(base: str) -> dict[str, bytes]:
    """Relative path -> content of everything that is exported, sorted by path."""
    root = files(dashboards)
    contents = {
        name: content.replace(DEFAULT_RUNBOOKS.encode(), base.encode())
        for folder in FOLDERS
        for name, content in _below(root / folder, folder)
    }
    return dict(sorted(contents.items()))


def select_by_labels(dashboard: str, labels: Sequence[str]) -> str:
    """The dashboard with a variable for each label, by which each query and link selects."""
    matchers = "".join(rf", {label}=~\"${label}\"" for label in labels)
    parameters = "".join(f"&${{{label}:queryparam}}" for label in labels)
    text = _SELECTOR.sub(lambda match: f"{match[1]}{matchers}}}", dashboard)
    content = json.loads(text.replace(_PARAMETER, _PARAMETER + parameters))
    variables = content["templating"]["list"]
    place, job = next(entry for entry in enumerate(variables) if entry[1]["name"] == "job")
    variables[place + 1 : place + 1] = [_variable(job, label) for label in labels]
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def link_to_dashboard(rules: str, url: str) -> str:
    """The rules with a ``dashboard_url`` beside each ``runbook_url``, as a driver's alerts have it.

    ``url`` may hold ``{app}`` and ``{query}``. ``$__all`` is Grafana's value for all queries.
    """
    app = "{{ $labels.app | urlquery }}"
    query = '{{ if eq $labels.query "*" }}$__all{{ else }}{{ $labels.query | urlquery }}{{ end }}'
    link = url.replace("{app}", app).replace("{query}", query)
    return _RUNBOOK_URL.sub(lambda line: f"{line[0]}{line[1]}dashboard_url: '{link}'\n", rules)


def _variable(job: dict[str, Any], label: str) -> dict[str, Any]:
    query = f"label_values(querypulse_build_info, {label})"
    return job | {
        "name": label,
        "label": label,
        "query": {"query": query, "refId": f"variable-{label}"},
        "definition": query,
        # Targets without the label are part of "All".
        "allValue": ".*",
    }


def _label(text: str) -> str:
    if _LABEL.fullmatch(text) is None or text in _OWN_LABELS:
        raise argparse.ArgumentTypeError(
            f"a label of Prometheus that querypulse does not set itself, given {text!r}"
        )
    return text


def _below(place: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for child in place.iterdir() if place.is_dir() else ():
        path = f"{name}/{child.name}"
        if child.is_dir():
            yield from _below(child, path)
        else:
            yield path, child.read_bytes()


def _write(folder: Path, contents: Mapping[Path, bytes], count: int) -> int:
    for number, (path, content) in enumerate(contents.items()):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content, FILE_MODE)
        except OSError as error:
            sys.stderr.write(
                f"querypulse: dashboards export: {path}: {error.strerror}; "
                f"{number} of {len(contents)} files were written\n"
            )
            return WRITTEN_IN_PART
        sys.stdout.write(f"{path}\n")
    same = count - len(contents)
    sys.stdout.write(f"{len(contents)} files written below {folder}, {same} were up to date\n")
    return 0
