"""``querypulse dashboards export``: rules, dashboards, runbooks and a stack to try, as files."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .. import dashboards
from ..core.files import write_whole
from ..core.text import listed
from ..settings.links import runbook_base_url
from ..settings.loading import load_strictly
from ..settings.settings import DEFAULT_RUNBOOKS, Settings, SettingsError

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
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OWN_LABELS = {"alertname", "app", "datasource", "instance", "job", "query", "severity", "state"}
_ADDRESS = re.compile(r"https?://[\w.~:/?=&%@+,;!*-]+", re.ASCII)


class ExportError(Exception):
    """Nothing was written; the message says why."""


class ExportRequest(msgspec.Struct, frozen=True):
    """The arguments of the command line."""

    folder: str
    labels: tuple[str, ...] = ()
    force: bool = False


def add_dashboards_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the fields of an ``ExportRequest``."""
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


def export_dashboards(request: ExportRequest, environment: Mapping[str, str]) -> int:
    """Write the files that differ and print their paths; 1 when writing failed half-way.

    Runbook links point to the setting ``runbook_base_url``. Dashboards have a variable for each
    label of the request.

    Raises:
        ExportError: an existing file or folder prevents it, or a path cannot be written.
        SettingsError: a setting is unknown or not allowed.

    """
    base = _runbooks(load_strictly({}, environment).settings)
    folder = Path(request.folder)
    shipped = {folder / name: content for name, content in shipped_files(base).items()}
    for path, content in shipped.items():
        if request.labels and path.suffix == ".json":
            shipped[path] = select_by_labels(content.decode(), request.labels).encode()
    try:
        differing = [path for path, content in shipped.items() if _differs(folder, path, content)]
        _require_consent([path for path in differing if path.exists()], folder, force=request.force)
        _require_writable(folder, differing)
    except OSError as error:
        raise ExportError(_refused(error.filename, error.strerror)) from None
    return _write(folder, {path: shipped[path] for path in differing}, len(shipped))


def _runbooks(settings: Settings) -> str:
    """The base of the links, which must be safe inside YAML, JSON and Markdown."""
    base = runbook_base_url(settings)
    if _ADDRESS.fullmatch(base) is None:
        raise SettingsError(
            "setting 'runbook_base_url': to export dashboards it must be an http or https "
            f"address of letters, digits and ~:/?=&%@+,;!*-._ (given: {base!r})"
        )
    return base


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
    job = next(i for i, variable in enumerate(variables) if variable["name"] == "job")
    for label in reversed(labels):
        query = f"label_values(querypulse_build_info, {label})"
        variables.insert(
            job + 1,
            variables[job]
            | {
                "name": label,
                "label": label,
                "query": {"query": query, "refId": f"variable-{label}"},
                "definition": query,
                # Targets without the label are part of "All".
                "allValue": ".*",
            },
        )
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


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


def _differs(folder: Path, path: Path, content: bytes) -> bool:
    """Whether ``path`` has to be written; raises when it, or a folder above it, is in the way."""
    for parent in _between(folder, path):
        _require(not parent.is_symlink(), parent, "is a symbolic link")
    for parent in (folder, *_between(folder, path)):
        _require(parent.is_dir() or not _is_there(parent), parent, "is not a folder")
    _require(not path.is_symlink(), path, "is a symbolic link")
    _require(path.is_file() or not path.exists(), path, "is not a file")
    return not path.exists() or path.read_bytes() != content


def _is_there(path: Path) -> bool:
    """Whether anything exists at ``path``, a broken link included."""
    return os.path.lexists(path)


def _require(condition: bool, path: Path, problem: str) -> None:
    if not condition:
        raise ExportError(_refused(path, problem))


def _refused(path: Path, problem: str | None) -> str:
    return f"dashboards export: {path}: {problem}; nothing was written"


def _between(folder: Path, path: Path) -> list[Path]:
    """The folders below ``folder`` that lead to ``path``, outermost first."""
    inner = path.relative_to(folder).parents
    return [folder / parent for parent in reversed(inner) if parent != Path()]


def _require_consent(overwritten: list[Path], folder: Path, *, force: bool) -> None:
    if not overwritten or force:
        return
    shown = listed([path.relative_to(folder).as_posix() for path in overwritten], NAMED)
    raise ExportError(
        f"dashboards export: these files below {folder} differ: {shown}; "
        "nothing was written (--force overwrites them)"
    )


def _require_writable(folder: Path, paths: list[Path]) -> None:
    """Make the folder, and check that every target folder can be written to."""
    folder.mkdir(parents=True, exist_ok=True)
    for parent in sorted({folder, *(path.parent for path in paths)}):
        usable = not parent.exists() or os.access(parent, os.W_OK | os.X_OK)
        _require(usable, parent, "is not writable")


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
