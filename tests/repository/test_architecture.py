"""The architecture: allowed imports, blocking calls, and size limits."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support.repository import ROOT

SHARED = {"core", "listener"}
BELOW_SETTINGS = {*SHARED, "alerting", "exporter"}
MAY_IMPORT = {
    "core": set(),
    "listener": {"core"},
    "exporter": SHARED,
    "alerting": SHARED,
    "dashboards": set(),
    "settings": {*BELOW_SETTINGS, "dashboards"},
    "sidecar": {*BELOW_SETTINGS, "settings"},
    "watch": {*BELOW_SETTINGS, "settings"},
    "replay": {*BELOW_SETTINGS, "settings"},
    "launch": {"core", "sidecar"},
    "commands": {
        *BELOW_SETTINGS,
        "settings",
        "sidecar",
        "launch",
        "watch",
        "replay",
        "dashboards",
    },
    "examples": {"core", "settings", "commands"},
}
"""What each folder imports beside itself."""
FOLDERS = tuple(MAY_IMPORT)
IMPORT_PYSPARK = {
    "listener/spark/jvm.py",
    "listener/connect/client.py",
    "listener/spark/health_listener.py",
    "listener/sources/kafka.py",
    "listener/spark/event_paths.py",
    "commands/demo/demo.py",
    "examples/delta/artifacts.py",
    "examples/delta/broker.py",
    "examples/delta/connectors.py",
    "sidecar/failure.py",
    "replay/fleet.py",
    "sidecar/session.py",
}
START_THREADS = {
    "exporter/server.py",
    "core/threads.py",
    "commands/demo/demo.py",
    "commands/demo/pipeline.py",
    "examples/delta/ivy_talk.py",
    "listener/connect/event_stream.py",
    "sidecar/runtime.py",
}
ALONE = {
    "exporter/query_metrics.py": "one group of metric families, beside the others",
    "exporter/push.py": "one of two push targets",
    "launch/boot/sitecustomize.py": "Python imports this name when it starts",
    "launch/launcher.py": "Spark runs this file by its path",
}
"""Short files that not more than one other file imports, and why they are not part of it."""
SHORT_FILE_LINES = 40
MAX_FILE_LINES = 250
MAX_FUNCTION_LINES = 50
MAX_CONSTRUCTOR_PARAMETERS = 10

FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(), name) for name, path in FILES.items()}
PACKAGES = sorted({path.parent for name, path in FILES.items() if not name.startswith("examples/")})
"""What the wheel contains."""


def nodes(name, *kinds):
    return [node for node in ast.walk(TREES[name]) if isinstance(node, kinds)]


def relative_imports(name):
    """The relative imports of a file: the parts of the package's or module's path, and the names."""
    here = Path(name).parent.parts
    for node in nodes(name, ast.ImportFrom):
        if node.level:
            base = here[: len(here) - node.level + 1]
            module = node.module.split(".") if node.module else ()
            yield (*base, *module), [alias.name for alias in node.names]


def folders_imported(name):
    """The top folders that a file imports from, its relative imports resolved."""
    found = set()
    for parts, names in relative_imports(name):
        found |= {parts[0]} if parts else set(names)
    return found


def files_imported(name):
    """The files that a file imports by relative imports."""
    found = set()
    for parts, names in relative_imports(name):
        found |= {"/".join((*parts, one)) + ".py" for one in names} | {"/".join(parts) + ".py"}
    return found & FILES.keys()


def modules_imported(name):
    """Absolute imports, by their first part."""
    found = {node.module for node in nodes(name, ast.ImportFrom) if not node.level}
    found |= {alias.name for node in nodes(name, ast.Import) for alias in node.names}
    return {module.partition(".")[0] for module in found}


def calls(name):
    """The functions that a file calls, as written."""
    return [ast.unparse(node.func) for node in nodes(name, ast.Call)]


def breaking(rule):
    """The files that break a rule, and how."""
    found = {name: rule(name) for name in FILES}
    return {name: how for name, how in found.items() if how}


def is_demo(name):
    return name.startswith(("commands/demo/", "examples/"))


def isolated(script, folder):
    """Run Python where the checkout is not on the path; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-Ic", script], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_there_are_files_to_check():
    assert {name.partition("/")[0] for name in FILES} == set(FOLDERS)


def _forbidden(name):
    folder = name.partition("/")[0]
    return folders_imported(name) - MAY_IMPORT[folder] - {folder}


# -- imports ----------------------------------------------------------------------------------


def test_imports_follow_the_allowed_direction():
    assert breaking(_forbidden) == {}


def test_relative_imports_are_resolved_as_python_does():
    """The test above depends on this function."""
    assert folders_imported("alerting/rules/query_stopped.py") == {"alerting", "core", "listener"}
    assert folders_imported("commands/demo/scenarios.py") == {"commands"}
    assert folders_imported("sidecar/worker.py") == {"alerting", "listener"}


def test_imports_inside_the_project_are_relative():
    assert breaking(lambda name: modules_imported(name) & {"querypulse", *FOLDERS}) == {}


def test_no_relative_import_leaves_the_project():
    def too_far(name):
        depth = len(Path(name).parts)
        return {node.lineno for node in nodes(name, ast.ImportFrom) if node.level > depth}

    assert breaking(too_far) == {}


def test_only_known_files_import_pyspark():
    assert {name for name in FILES if modules_imported(name) & {"pyspark", "py4j"}} == (
        IMPORT_PYSPARK
    )


def test_only_declared_dependencies_are_imported():
    allowed = {"msgspec", "prometheus_client", "requests", "urllib3", "tenacity", "tomli"}
    # PySpark's own client for Spark Connect needs grpc.
    allowed |= {"pyspark", "py4j", "grpc", "google", "opentelemetry", "zstandard", "cramjam"}
    allowed |= set(sys.stdlib_module_names)

    assert set().union(*map(modules_imported, FILES)) <= allowed


@pytest.mark.parametrize(
    "module",
    [
        "sidecar",
        "commands.cli",
        "commands.check",
        "commands.export_dashboards",
        "replay.command",
        "settings.settings",
        "commands.silence",
        "commands.try_receivers",
        "settings.wiring",
        "listener",
        "alerting",
        "exporter",
        "exporter.server",
        "alerting.delivery",
        "dashboards",
        "launch.startup",
        "launch.sessions",
    ],
)
def test_module_can_be_imported_without_pyspark(module, tmp_path):
    script = (
        f"import sys, querypulse.{module}; print(*sorted({{'pyspark', 'py4j'}} & set(sys.modules)))"
    )

    assert isolated(script, tmp_path) == []


def test_root_package_exports_the_sidecars_public_names():
    import querypulse
    from querypulse import QueryFailure, Settings, SettingsError, Sidecar, attach, sidecar

    assert all(callable(name) for name in (QueryFailure, Settings, SettingsError, Sidecar, attach))
    assert querypulse.__all__ == sidecar.__all__
    assert all(getattr(querypulse, name) is getattr(sidecar, name) for name in sidecar.__all__)


@pytest.mark.parametrize("package", ["querypulse", "querypulse.listener", "querypulse.alerting"])
def test_package_can_be_imported_without_the_sidecar(package, tmp_path):
    script = f"import sys, {package}; print('querypulse.sidecar' in sys.modules)"

    assert isolated(script, tmp_path) == ["False"]


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
    script = (
        "from importlib.util import find_spec\n"
        f"print(*[name for name in {FOLDERS} if find_spec(name) is not None])"
    )

    assert isolated(script, tmp_path) == []


def test_no_folder_of_the_checkout_shadows_the_installed_package():
    assert not (ROOT / "querypulse").exists()


def test_package_is_typed():
    """PEP 561: the marker of the top package counts for all."""
    assert (ROOT / "py.typed").is_file()


def test_every_folder_with_code_is_a_package_and_is_installed(tmp_path):
    assert all((package / "__init__.py").is_file() for package in PACKAGES)
    dotted = [".".join(package.relative_to(ROOT).parts) for package in PACKAGES]
    script = (
        f"import importlib\nfor name in {dotted}: importlib.import_module('querypulse.' + name)"
    )
    isolated(script, tmp_path)
    assert all(f'"querypulse.{name}"' in (ROOT / "pyproject.toml").read_text() for name in dotted)


# -- size -------------------------------------------------------------------------------------


def test_file_has_at_most_250_lines():
    lines = {name: len(path.read_text().splitlines()) for name, path in FILES.items()}

    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_short_file_serves_several_files_or_says_why_it_is_a_file():
    length = {name: len(path.read_text().splitlines()) for name, path in FILES.items()}
    users = {name: [] for name in FILES}
    for name in FILES:
        for imported in files_imported(name):
            users[imported].append(name)

    def could_be_merged(name):
        """Whether its only user would hold it too; without a user, it is run by its path."""
        return sum(length[one] for one in (name, *users[name])) <= MAX_FILE_LINES

    short = {
        name
        for name, lines in length.items()
        if lines < SHORT_FILE_LINES and len(users[name]) < 2 and "__" not in name
    }
    assert {name for name in short if could_be_merged(name)} == ALONE.keys()


def test_tool_file_has_at_most_250_lines():
    """Functions of the tools may be longer: a row of panels is one long list."""
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / "tools").rglob("*.py")}

    assert lines
    assert {path: count for path, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_function_has_at_most_50_lines():
    def too_long(name):
        functions = nodes(name, ast.FunctionDef, ast.AsyncFunctionDef)
        lines = {node.name: node.end_lineno - node.lineno + 1 for node in functions}
        return {(name, count) for name, count in lines.items() if count > MAX_FUNCTION_LINES}

    assert breaking(too_long) == {}


def test_constructor_has_at_most_ten_parameters():
    """More of them belong together in structs, whose fields have names."""

    def too_many(name):
        made = [node for node in nodes(name, ast.FunctionDef) if node.name == "__init__"]
        counts = {node.lineno: len(node.args.args[1:] + node.args.kwonlyargs) for node in made}
        return {(line, n) for line, n in counts.items() if n > MAX_CONSTRUCTOR_PARAMETERS}

    assert breaking(too_many) == {}


# -- properties -------------------------------------------------------------------------------


def assigned_in_properties(name):
    """The properties of a file that assign, delete or set an attribute of an object."""
    found = [node for node in nodes(name, ast.FunctionDef) if is_property(node)]
    return {node.name for node in found if any(map(is_side_effect, ast.walk(node)))}


def is_property(function):
    decorators = [ast.unparse(one) for one in function.decorator_list]
    return any(one in {"property", "cached_property"} for one in decorators)


def is_side_effect(node):
    if isinstance(node, ast.Attribute):
        return not isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {
        "setattr",
        "delattr",
        "object.__setattr__",
    }


def test_property_assigns_no_attribute():
    """Reading an attribute must change nothing; PySpark reads the one exception to wire itself."""
    assert breaking(assigned_in_properties) == {"listener/spark/health_listener.py": {"_jlistener"}}


# -- blocking, printing, threads --------------------------------------------------------------


def test_only_known_files_start_threads():
    starts = {"threading.Thread", "Thread", "threading.Timer", "Timer", "ThreadPoolExecutor"}

    assert {name for name in FILES if starts & set(calls(name))} == START_THREADS


def test_nothing_sleeps_outside_the_demo():
    """A waiting thread must wake up to stop; the only exception is the server's pause of a
    twentieth of a second, when the process is out of file descriptors.
    """
    sleeping = breaking(lambda name: {"time.sleep", "sleep"} & set(calls(name)))

    assert {name for name in sleeping if not is_demo(name)} == {"exporter/http_requests.py"}


def test_nothing_prints():
    """The driver's output belongs to the job."""
    assert breaking(lambda name: {"print"} & set(calls(name))) == {}


def test_only_commands_write_to_the_terminal():
    writing = {name for name in FILES if "sys.stdout" in FILES[name].read_text()}

    assert {name for name in writing if not is_demo(name)} == {
        "commands/check.py",
        "commands/export_dashboards.py",
        "commands/cli.py",
        "replay/command.py",
        "replay/fleet.py",
        "commands/silence.py",
        "commands/try_receivers.py",
    }
