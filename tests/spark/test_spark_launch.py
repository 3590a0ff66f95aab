"""Jobs that do not know querypulse, on real Spark: watched, and ended as without it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pyspark
import pytest
from support.auto_attach import auto_attaching_python
from support.driver import START_SECONDS, Driver
from support.wheel import build_wheel

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


def run_third_party(pages, folder, command, **settings):
    """Run the job until its failure has been reported; what it printed, and the alert's labels."""
    seen = folder / "seen"
    settings["QUERYPULSE_WEBHOOK_URL"] = pages.url
    with job("third_party", folder, command, [seen], **settings) as driver:
        failure = pages.wait_for("StreamingQueryFailed", "gold")
        seen.touch()
        assert driver.wait() == 7, driver.errors
    assert f"arguments ['{seen}'] __main__ failed" in driver.lines
    return driver.lines, failure.labels


@pytest.mark.every_spark
def test_untouched_script_is_watched_by_run(pages, tmp_path):
    command = (sys.executable, "-c", CLI, "run")
    _, alert = run_third_party(
        pages,
        tmp_path,
        command,
        QUERYPULSE_APP_NAME="thirdparty",
        PYSPARK_SUBMIT_ARGS=shlex.join([*SUBMITTED, "pyspark-shell"]),
    )

    assert alert["app"] == "thirdparty"


@pytest.mark.thorough
def test_spark_submit_with_the_launcher_watches_the_job_from_an_archive(pages, tmp_path):
    """``--py-files`` puts the wheel on the driver's path, before an installed querypulse."""
    wheel = build_wheel(tmp_path)
    named = ["--name", "orders", "--py-files", str(wheel), LAUNCHER]
    lines, alert = run_third_party(pages, tmp_path, (SUBMIT, *SUBMITTED, *named))

    assert f"watched by {wheel}/querypulse/sidecar/__init__.py" in lines
    assert alert["app"] == "orders"


@pytest.mark.thorough
def test_auto_attach_attaches_drivers_and_not_workers_and_yields_to_the_job(tmp_path):
    python = auto_attaching_python(tmp_path / "venv")
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
