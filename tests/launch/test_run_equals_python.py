"""``querypulse run`` ends, prints and behaves as plain Python does, byte for byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from support.patience import PATIENCE_SECONDS

from querypulse.launch.launcher import __file__ as LAUNCHER

pytestmark = pytest.mark.slow
PYTHON = (sys.executable,)
CLI = (sys.executable, "-c", "from querypulse.commands.cli import main; raise SystemExit(main())")
RUN = (*CLI, "run")
LAUNCH = (sys.executable, LAUNCHER)

JOBS = {
    "an uncaught exception": "def f():\n    raise ValueError('boom')\nf()\n",
    "chained exceptions": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e\n",
    "sys.exit(3)": "import sys\nprint('out'); print('err', file=sys.stderr); sys.exit(3)\n",
    "SystemExit with a text": "raise SystemExit('no such table')\n",
    "a syntax error": "print('never'\n",
    "success": "print('fine')\n",
    "a look at the interpreter": (
        "import os, sys\n"
        "print(sys.argv, sys.path, __file__, __name__, __spec__ and __spec__.name, __doc__, sorted(globals()))\n"
        "print(sys.flags, sys.excepthook is sys.__excepthook__, sys.modules['__main__'].__dict__ is globals())\n"
        "print(sorted(os.environ.items()), 'sitecustomize' in sys.modules)\n"
    ),
    "children of multiprocessing": (
        "import multiprocessing, sys\n"
        "def child(x):\n    print(__name__, x, 'querypulse' in sys.modules, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    one = context.Process(target=child, args=(1,)); one.start(); one.join()\n"
        "    sys.exit(one.exitcode)\n"
    ),
    "pickling of a class in __main__": (
        "import pickle\n"
        "class Row:\n    pass\n"
        "print(pickle.dumps(Row()), type(pickle.loads(pickle.dumps(Row()))) is Row)\n"
    ),
    "a child process": (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import os, sys; print(\"querypulse.launch.startup\" in sys.modules, os.environ.get(\"PYTHONPATH\"))'])\n"
    ),
    "os._exit": "import os\nprint('out', flush=True)\nos._exit(7)\n",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
}


def done(command, folder, **environment):
    """Exit code, output and errors."""
    ran = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", **environment},
        timeout=PATIENCE_SECONDS,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture
def job(tmp_path):
    """Write the job; returns its folder."""

    def write(text, name="job.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return tmp_path

    return write


ENDS = {"success": 0, "sys.exit(3)": 3, "os._exit": 7, "a signal": -signal.SIGTERM}
"""The exit codes of some jobs; a job of which Python makes nothing special ends with 1."""


@pytest.mark.parametrize("name", JOBS)
def test_job_equals_plain_python(name, job):
    """By the launcher, which starts in less time, and starts the job as ``run`` does."""
    folder = job(JOBS[name])
    plain = done([*PYTHON, "job.py", "a", "--b=c", "-h"], folder)

    assert done([*LAUNCH, "job.py", "a", "--b=c", "-h"], folder) == plain
    assert plain[0] == ENDS.get(name, 0 if plain[2] == b"" else 1)


@pytest.mark.parametrize("name", ["an uncaught exception", "a look at the interpreter"])
def test_run_equals_plain_python(name, job):
    folder = job(JOBS[name])

    assert done([*RUN, "job.py", "-h"], folder) == done([*PYTHON, "job.py", "-h"], folder)


@pytest.mark.parametrize(
    "words", [["nowhere.py"], ["-m", "package.job", "a"], ["-m", "nowhere"], ["package"], ["."]]
)
def test_what_is_named_is_found_as_plain_python_finds_it(words, job):
    folder = job(JOBS["a look at the interpreter"], "package/job.py")
    folder = job(JOBS["a look at the interpreter"], "package/__main__.py")

    assert done([*LAUNCH, *words], folder) == done([*PYTHON, *words], folder)


@pytest.mark.parametrize(
    "text", ["print('mine')\n", "import nowhere\n", "1 / 0\n"], ids=["works", "import", "fails"]
)
def test_the_sitecustomize_of_the_environment_is_imported(text, job):
    folder = job(JOBS["a look at the interpreter"])
    job(text, "site/sitecustomize.py")
    path = {"PYTHONPATH": str(folder / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    # The launcher is a Python, too, and imports it before the job's Python does.
    _, output, errors = done([*PYTHON, "-c", ""], folder, **path)
    code, plain_output, plain_errors = done([*PYTHON, "job.py"], folder, **path)

    assert output or errors
    assert done([*LAUNCH, "job.py"], folder, **path) == (
        code,
        output + plain_output,
        errors + plain_errors,
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [(RUN, []), (LAUNCH, []), (RUN, ["-m"]), (LAUNCH, ["--verbose", "job.py"]), (LAUNCH, [""])],
)
def test_a_missing_job_is_one_line(command, words, tmp_path):
    code, output, errors = done([*command, *words], tmp_path)

    assert (code, output) == (2, b"")
    assert errors.startswith(b"querypulse: ")
    assert b"job.py ARGS" in errors
    assert errors.count(b"\n") == 1


def test_launcher_prints_the_script_for_spark_submit(tmp_path):
    assert done([*CLI, "launcher"], tmp_path) == (0, f"{LAUNCHER}\n".encode(), b"")
