"""What holds wherever the package is installed: what it imports, exports and leaves alone.

``python -m tools.architecture``, a part of ``make lint``, reads the files.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from support.repository import ROOT, files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NOT_INSTALLED = {"tests", "tools", "benchmarks", "examples", "deploy", "docs"}
WITHOUT_PYSPARK = (
    "sidecar",
    "commands.cli",
    "commands.check",
    "commands.export_dashboards",
    "replay.command",
    "settings.settings",
    "commands.silence",
    "sidecar.assemble",
    "watch.command",
    "listener",
    "alerting",
    "exporter",
    "exporter.server",
    "alerting.delivery",
    "dashboards",
    "launch.startup",
    "launch.sessions",
    "sidecar.worker",
)


OF_OTHERS = {"pyspark", "py4j", "grpc", "google", "typing_extensions"}
"""PySpark's own, what Spark Connect brings, and what only type checkers import."""
NAMES = {"opentelemetry": "opentelemetry-proto"}
"""Packages whose distribution has another name."""


def test_every_package_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = {
        re.match(r"[\w-]+", text)[0].replace("-", "_")
        for text in (*project["dependencies"], *(text for extra in extras for text in extra))
    }
    imported = set()
    for name in files():
        if name.endswith(".py") and name.partition("/")[0] not in NOT_INSTALLED:
            for node in ast.walk(ast.parse((ROOT / name).read_text())):
                if isinstance(node, ast.Import):
                    imported |= {alias.name.partition(".")[0] for alias in node.names}
                if isinstance(node, ast.ImportFrom) and not node.level:
                    imported.add(str(node.module).partition(".")[0])
    foreign = imported - sys.stdlib_module_names - OF_OTHERS - {"querypulse", "tomllib"}
    packages = {NAMES.get(module, module).replace("-", "_") for module in foreign}

    assert {"urllib3", "requests", "msgspec", "opentelemetry_proto"} <= packages
    assert packages - declared == set()


def isolated(script, folder):
    """Run Python where the checkout is not on the path; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-Ic", script], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_modules_can_be_imported_without_pyspark(tmp_path):
    script = (
        "import importlib, sys\n"
        f"for name in {WITHOUT_PYSPARK}:\n"
        "    importlib.import_module('querypulse.' + name)\n"
        "    if {'pyspark', 'py4j'} & set(sys.modules): sys.exit(name + ' imports PySpark')"
    )

    assert isolated(script, tmp_path) == []


def test_root_package_exports_the_sidecars_public_names():
    import querypulse
    from querypulse import QueryFailure, Settings, SettingsError, Sidecar, attach, sidecar

    assert all(callable(name) for name in (QueryFailure, Settings, SettingsError, Sidecar, attach))
    assert querypulse.__all__ == sidecar.__all__
    assert all(getattr(querypulse, name) is getattr(sidecar, name) for name in sidecar.__all__)


def test_dir_and_help_show_the_public_names_with_their_docs():
    import pydoc

    import querypulse
    from querypulse import sidecar

    for module in (querypulse, sidecar):
        assert dir(module) == sorted(module.__all__)
        shown = pydoc.plain(pydoc.render_doc(module))
        assert "__getattr__" not in shown
        for name in set(module.__all__) - {"__version__"}:
            first_line = getattr(module, name).__doc__.strip().splitlines()[0]
            assert name in shown
            assert first_line in shown, name


@pytest.mark.slow
def test_the_parts_load_no_sidecar(tmp_path):
    script = (
        "import sys, querypulse, querypulse.listener, querypulse.alerting\n"
        "print([name for name in sys.modules if name.startswith('querypulse.sidecar')])"
    )

    assert isolated(script, tmp_path) == ["[]"]


def test_unknown_name_is_an_attribute_error():
    import querypulse
    import querypulse.listener
    import querypulse.sidecar

    for module in (querypulse, querypulse.listener, querypulse.sidecar):
        with pytest.raises(AttributeError, match="nobody"):
            _ = module.nobody


# -- installation -----------------------------------------------------------------------------


def test_our_folders_are_not_importable_by_their_bare_names(tmp_path):
    """``listener`` and ``sidecar`` may be modules of the user's own job."""
    folders = [file.parent.name for file in ROOT.glob("*/__init__.py")]
    script = (
        "from importlib.util import find_spec\n"
        f"print(*[name for name in {folders} if find_spec(name) is not None])"
    )

    assert {"listener", "sidecar"} <= set(folders)
    assert isolated(script, tmp_path) == []
    assert not (ROOT / "querypulse").exists()
