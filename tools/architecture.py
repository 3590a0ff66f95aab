"""``python -m tools.architecture``: check the layout, and report what could be simpler.

A broken rule is an error: which folder imports which, circles, sizes, and what never happens in
the host's process (printing, sleeping). The report is none: the lines and files of each folder
beside its budget, short files that the only file that imports them could hold, and functions that
only forward.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

import tomli

ROOT = Path(__file__).parents[1]
SHARED = {"core", "listener"}
BELOW_SETTINGS = {*SHARED, "alerting", "recording", "exporter"}
WITH_SETTINGS = {*BELOW_SETTINGS, "settings"}
WITH_SIDECAR = {*WITH_SETTINGS, "sidecar"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "listener": {"core"},
    "exporter": {*SHARED, "alerting", "recording"},
    "recording": {*SHARED, "alerting"},
    "alerting": SHARED,
    "dashboards": set(),
    "settings": {*BELOW_SETTINGS, "dashboards"},
    "sidecar": WITH_SETTINGS,
    "watch": WITH_SIDECAR,
    "replay": WITH_SIDECAR,
    "launch": {"core", "sidecar"},
    "commands": {*WITH_SIDECAR, "launch", "watch", "replay", "dashboards"},
    "examples": {"core", "settings", "commands"},
}
"""What each folder imports besides itself."""
HOSTS_OWN = {"pyspark", "py4j", "grpc", "google"}
EXTRAS = {"opentelemetry", "zstandard"}
OF_TYPE_CHECKERS = {"typing_extensions"}
"""Known to each type checker; nothing imports it at run time."""
BUDGET = {
    "core": (2095, 13),
    "listener": (16000, 63),
    "exporter": (3250, 9),
    "alerting": (15500, 50),
    "recording": (4650, 14),
    "settings": (1700, 10),
    "sidecar": (4600, 16),
    "watch": (3500, 11),
    "replay": (1715, 9),
    "launch": (470, 7),
    "commands": (2680, 12),
    "examples": (800, 5),
}
"""Lines and files of each folder: what it costs a newcomer to read."""
MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
SHORT_FILE_LINES = 100
MAX_FOLDER_FILES = 15
TERMINALS = ("commands/", "examples/", "launch/", "replay/", "watch/")

Trees = dict[str, ast.Module]
Rule = Callable[[str, ast.Module], Iterator[str]]


def parse() -> Trees:
    """Return the syntax tree of each file of the product, by its path in the checkout."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for folder in MAY_IMPORT
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def relative_imports(name: str, node: ast.AST) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what relative imports bring: the path of a package or module, and a name."""
    here = Path(name).parent.parts
    for child in ast.walk(node):
        if isinstance(child, ast.ImportFrom) and child.level:
            base = here[: len(here) - child.level + 1]
            module = (*base, *(child.module.split(".") if child.module else ()))
            yield from ((module, alias.name) for alias in child.names)


def absolute_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the top package of each absolute import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def files_imported(name: str, node: ast.AST, trees: Trees) -> set[str]:
    """The files of which a file imports something: a module, or else what a package exports."""
    files = set()
    for module, imported in relative_imports(name, node):
        folder = "/".join(module)
        paths = (f"{folder}/{imported}.py", f"{folder}.py", f"{folder}/__init__.py")
        files |= set([path for path in paths if path in trees][:1])
    return files - {name}


def calls(tree: ast.Module) -> set[str]:
    """The functions that a file calls, as written."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


# -- rules of one file ------------------------------------------------------------------------


def import_goes_down(name: str, tree: ast.Module) -> Iterator[str]:
    """A folder imports only what is below it."""
    folder = name.partition("/")[0]
    imported = {(*module, name)[0] for module, name in relative_imports(name, tree)}
    for other in sorted(imported & MAY_IMPORT.keys() - MAY_IMPORT[folder] - {folder}):
        yield f"{folder}/ imports {other}/, which is not below it"


def import_is_relative(_: str, tree: ast.Module) -> Iterator[str]:
    """Nothing of ours is imported by an absolute name: `listener` may be a module of the job."""
    for module in sorted(set(absolute_imports(tree)) & {"querypulse", *MAY_IMPORT}):
        yield f"imports {module} by an absolute name"


@cache
def dependencies() -> set[str]:
    """The packages that pyproject.toml declares, as they are imported."""
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = (re.split(r"[^\w-]", text)[0] for text in project["dependencies"])
    return {name.replace("-", "_") for name in names}


def dependency_is_declared(_: str, tree: ast.Module) -> Iterator[str]:
    """Only the standard library, our dependencies, extras, and what the host brings."""
    allowed = dependencies() | HOSTS_OWN | EXTRAS | OF_TYPE_CHECKERS | set(sys.stdlib_module_names)
    for module in sorted(set(absolute_imports(tree)) - allowed - {"querypulse", *MAY_IMPORT}):
        yield f"imports {module}, which is no dependency"


def file_fits(name: str, _: ast.Module) -> Iterator[str]:
    """A file has at most 800 lines."""
    if (lines := line_count(name)) > MAX_FILE_LINES:
        yield f"{lines} lines, more than {MAX_FILE_LINES}"


def function_fits(_: str, tree: ast.Module) -> Iterator[str]:
    """A function has at most 60 lines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.name} has {lines} lines, more than {MAX_FUNCTION_LINES}"


def host_is_left_alone(name: str, tree: ast.Module) -> Iterator[str]:
    """The driver's output belongs to the job, and a thread that sleeps cannot be stopped."""
    called = calls(tree)
    if "print" in called:
        yield "prints"
    if not name.startswith(TERMINALS) and called & {"sys.stdout.write", "sys.stderr.write"}:
        yield "writes to the terminal, which only commands do"
    in_job = not name.startswith(("commands/demo/", "examples/"))
    if called & {"time.sleep", "sleep"} and in_job:
        yield "sleeps: wait for something that can be set"


RULES: tuple[Rule, ...] = (
    import_goes_down,
    import_is_relative,
    dependency_is_declared,
    file_fits,
    function_fits,
    host_is_left_alone,
)


# -- rules of all files -----------------------------------------------------------------------


def budget_is_kept(trees: Trees) -> Iterator[str]:
    """A part of the product has at most the lines and files that it was given."""
    for folder, counts in line_counts(trees).items():
        lines, files = BUDGET[folder]
        if sum(counts) > lines or len(counts) > files:
            yield (
                f"{folder}: {sum(counts)} lines in {len(counts)} files, "
                f"more than {lines} in {files}: simplify, or say why it is worth more"
            )


def folder_fits(trees: Trees) -> Iterator[str]:
    """A folder has at most 15 files."""
    files = Counter(Path(name).parent.as_posix() for name in trees if not name.endswith("__.py"))
    for folder, count in files.items():
        if count > MAX_FOLDER_FILES:
            yield f"{folder}: {count} files, more than {MAX_FOLDER_FILES}"


def circle(trees: Trees) -> Iterator[str]:
    """Yield the first circle of files that import each other, late or only for types included."""
    imports = {name: files_imported(name, tree, trees) for name, tree in trees.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        yield f"circle of imports: {' <- '.join(error.args[1])}"


# -- the report -------------------------------------------------------------------------------


def line_count(name: str) -> int:
    """The lines of a file of the checkout."""
    return len((ROOT / name).read_text(encoding="utf-8").splitlines())


def short_files(trees: Trees) -> Iterator[str]:
    """Yield the files that could be a part of the only file that imports them."""
    users: defaultdict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        for imported in files_imported(name, tree, trees):
            users[imported].add(name)
    for name in trees:
        lines = line_count(name)
        if lines < SHORT_FILE_LINES and len(users[name]) == 1 and not name.endswith("__.py"):
            yield f"{name}: {lines} lines, imported only by {min(users[name])}"


def forwarders(trees: Trees) -> Iterator[str]:
    """Yield the functions that only call another with their own arguments."""
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and only_forwards(node):
                yield f"{name}: {node.name} only forwards"


def only_forwards(function: ast.FunctionDef) -> bool:
    """Whether all that a function does is a call with its own parameters, in their order."""
    *others, last = function.body
    call = getattr(last, "value", None)
    if (
        not isinstance(call, ast.Call)
        or (others and ast.get_docstring(function) is None)
        or others[1:]
    ):
        return False
    parameters = [
        argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")
    ]
    given = [
        *map(ast.unparse, call.args),
        *(ast.unparse(keyword.value) for keyword in call.keywords),
    ]
    return bool(parameters) and given == parameters and not function.decorator_list


def line_counts(trees: Trees) -> dict[str, list[int]]:
    """The lines of each file, by the folder at the root."""
    lines: defaultdict[str, list[int]] = defaultdict(list)
    for name in trees:
        lines[name.partition("/")[0]].append(line_count(name))
    return {folder: counts for folder, counts in lines.items() if folder in BUDGET}


def sizes(trees: Trees) -> Iterator[str]:
    """Yield lines and files of each folder, its budget, and the sum of what is installed."""
    counts = line_counts(trees)
    for folder, (lines, files) in BUDGET.items():
        own = counts[folder]
        yield (
            f"{folder:<10} {sum(own):>6} of {lines} lines, {len(own):>3} of {files} files, "
            f"median {median(own):.0f}, longest {max(own)}"
        )
    product = [count for folder in BUDGET.keys() - {"examples"} for count in counts[folder]]
    yield f"installed  {sum(product):>6} lines, {len(product)} files, median {median(product):.0f}"


def main() -> int:
    """Check all files of the product; 1 if a rule is broken."""
    trees = parse()
    broken = [
        f"{name}: {what}"
        for name, tree in trees.items()
        for rule in RULES
        for what in rule(name, tree)
    ]
    broken += [*circle(trees), *folder_fits(trees), *budget_is_kept(trees)]
    for line in [*sizes(trees), *short_files(trees), *forwarders(trees), *broken]:
        sys.stdout.write(f"{line}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
