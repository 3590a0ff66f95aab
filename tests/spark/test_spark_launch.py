"""Jobs that do not know querypulse, on real Spark: watched, and ended as without it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import sysconfig
import venv
from pathlib import Path

import pyspark
import pytest
from support.driver import START_SECONDS, Driver
from support.http_double import HttpDouble
from support.patience import until
from support.wheel import build_wheel

from querypulse.launch.auto_attach import CONTENT, NAME
from querypulse.launch.launcher import __file__ as LAUNCHER

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).parent / "scripts"
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
CLI = "from querypulse.commands.cli import main; raise SystemExit(main())"
CONF = {
    "spark.master": "local[2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
}
SUBMITTED = [word for item in CONF.items() for word in ("--conf", "=".join(item))]
SETTINGS = {
    "QUERYPULSE_HTTP_PORT": "-1",
    "QUERYPULSE_ALLOW_HTTP": "true",
    "PYSPARK_PYTHON": sys.executable,
}


def job(name, folder, command, arguments=(), **settings):
    """A driver with that script, which passes it ``arguments``."""
    script = (SCRIPTS / f"{name}.py").read_text()
    how = {"header": "", "command": command, "arguments": arguments}
    return Driver(script, folder, **how, **(SETTINGS | settings))


def failures(receiver):
    """The labels of each alert that says that the query failed."""
    alerts = [alert for sent in receiver.requests for alert in json.loads(sent.body)["alerts"]]
    every = [alert["labels"] for alert in alerts]
    return [labels for labels in every if labels["alertname"] == "StreamingQueryFailed"]


def run_third_party(folder, command, **settings):
    """Run the job until its failure has been reported; what it printed, and the alert's labels."""
    seen = folder / "seen"
    with HttpDouble() as receiver:
        settings["QUERYPULSE_WEBHOOK_URL"] = f"{receiver.url}/hook"
        with job("third_party", folder, command, [seen], **settings) as driver:
            until(lambda: failures(receiver), "the alert arrives")
            seen.touch()
            assert driver.wait() == 7, driver.errors
        assert f"arguments ['{seen}'] __main__ failed" in driver.lines
        return driver.lines, failures(receiver)[0]


def test_untouched_script_is_watched_by_run(tmp_path):
    command = (sys.executable, "-c", CLI, "run")
    _, alert = run_third_party(
        tmp_path,
        command,
        QUERYPULSE_APP_NAME="thirdparty",
        PYSPARK_SUBMIT_ARGS=shlex.join([*SUBMITTED, "pyspark-shell"]),
    )

    assert (alert["query"], alert["app"]) == ("gold", "thirdparty")


@pytest.mark.thorough
def test_spark_submit_with_the_launcher_watches_the_job_from_an_archive(tmp_path):
    """``--py-files`` puts the wheel on the driver's path, before an installed querypulse."""
    wheel = build_wheel(tmp_path)
    named = ["--name", "orders", "--py-files", str(wheel), LAUNCHER]
    lines, alert = run_third_party(tmp_path, (SUBMIT, *SUBMITTED, *named))

    assert f"watched by {wheel}/querypulse/sidecar/__init__.py" in lines
    assert (alert["query"], alert["app"]) == ("gold", "orders")


@pytest.mark.thorough
def test_auto_attach_attaches_drivers_and_not_workers_and_yields_to_the_job(tmp_path):
    python = environment(tmp_path / "venv")
    settings = {
        "QUERYPULSE_APP_NAME": "thirdparty",
        "QUERYPULSE_AUTO_ATTACH": "1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*SUBMITTED, "pyspark-shell"]),
    }
    with job("auto_attached", tmp_path, (python,), **settings) as driver:
        assert driver.wait(2 * START_SECONDS) == 0, driver.errors
    assert driver.lines == [
        "driver True True thirdparty",
        "worker False False",
        "same True",
        "own own True True",
        "hand True True",
    ]


def environment(home):
    """Python of a new environment with this one's packages, in which auto-attach is on."""
    venv.create(home)
    (folder,) = home.glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    (folder / "a_packages.pth").write_text(f"{here}\n")
    for path in here.glob("__editable___querypulse*_finder.py"):
        shutil.copy(path, folder)
    for path in here.glob("__editable__.querypulse*.pth"):
        shutil.copy(path, folder)
    (folder / NAME).write_text(CONTENT)
    return str(home / "bin" / "python")
