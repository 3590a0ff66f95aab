"""Jobs that do not know querypulse, on real Spark: watched, and ended as without it."""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
import venv
from pathlib import Path

import pyspark
import pytest
from support.driver import Driver
from support.http_double import HttpDouble
from support.queries import until
from support.wheel import build_wheel

from querypulse.launch.auto_attach import CONTENT, NAME
from querypulse.launch.launcher import __file__ as LAUNCHER

pytestmark = pytest.mark.spark

SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
CLI = "from querypulse.commands.cli import main; raise SystemExit(main())"
SETTINGS = {
    "QUERYPULSE_HTTP_PORT": "-1",
    "QUERYPULSE_ALLOW_HTTP": "true",
    "QUERYPULSE_APP_NAME": "thirdparty",
}
CONF = {
    "spark.master": "local[2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
}
BUILDER = "SparkSession.builder" + "".join(f".config({k!r}, {v!r})" for k, v in CONF.items())
THIRD_PARTY = f"""
import sys, threading
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

def fail(batch, batch_id):
    if batch_id == 1:
        raise ValueError("negative amount")

if __name__ == "__main__":
    spark = {BUILDER}.getOrCreate()
    stream = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    query = stream.writeStream.queryName("gold").foreachBatch(fail).start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        print("arguments", sys.argv[1:], __name__, "failed", flush=True)
    from pathlib import Path
    while not Path(sys.argv[1]).exists():
        threading.Event().wait(0.05)
    sys.exit(7)
"""
"""It waits for the file of its first argument, as a job with other work would."""


def pages(receiver):
    return [
        alert["labels"]
        for request in receiver.requests
        for alert in json.loads(request.body)["alerts"]
    ]


def failed(receiver):
    return [
        page
        for page in pages(receiver)
        if (page["alertname"], page["query"]) == ("StreamingQueryFailed", "gold")
    ]


def test_untouched_script_is_watched_by_run(tmp_path):
    seen = tmp_path / "seen"
    command = (sys.executable, "-c", CLI, "run")
    with HttpDouble() as receiver:
        settings = SETTINGS | {"QUERYPULSE_WEBHOOK_URL": f"{receiver.url}/hook"}
        with job(THIRD_PARTY, tmp_path, command, [seen], settings) as driver:
            until(lambda: failed(receiver), "the alert arrives", timeout=180)
            seen.touch()
            code = driver.wait(90)
    assert code == 7, driver.errors
    assert f"arguments ['{seen}'] __main__ failed" in driver.lines
    assert failed(receiver)[0]["app"] == "thirdparty"


def test_spark_submit_with_the_launcher_watches_the_job_from_an_archive(tmp_path):
    """``--py-files`` puts the wheel on the driver's path, before an installed querypulse."""
    seen, wheel = tmp_path / "seen", build_wheel(tmp_path)
    script = THIRD_PARTY.replace(
        "    sys.exit(7)",
        "    print(sys.modules['querypulse.sidecar'].__file__, flush=True)\n    sys.exit(7)",
    )
    command = (
        SUBMIT,
        "--master",
        "local[2]",
        "--name",
        "orders",
        "--py-files",
        str(wheel),
        LAUNCHER,
    )
    with HttpDouble() as receiver:
        settings = SETTINGS | {"QUERYPULSE_WEBHOOK_URL": f"{receiver.url}/hook"}
        del settings["QUERYPULSE_APP_NAME"]
        settings["PYSPARK_PYTHON"] = sys.executable
        with job(script, tmp_path, command, [seen], settings) as driver:
            until(lambda: failed(receiver), "the alert arrives", timeout=180)
            seen.touch()
            code = driver.wait(90)
    assert code == 7, driver.errors
    assert f"arguments ['{seen}'] __main__ failed" in driver.lines
    assert f"{wheel}/querypulse/sidecar/__init__.py" in driver.lines
    assert failed(receiver)[0]["app"] == "orders"


AUTO = f"""
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from querypulse import Sidecar, attach
from querypulse.sidecar.sidecar import SIDECARS

def hooks(_=None):
    waits = any(type(one).__name__ == "ImportHook" for one in sys.meta_path)
    return f"{{waits}} {{'querypulse.sidecar' in sys.modules}}"

builder = {BUILDER}
spark = builder.getOrCreate()
automatic = SIDECARS.find(spark.sparkContext)
print("driver", hooks(), automatic.settings.app_name, flush=True)
# Defined here, so that no module of ours travels with it.
def in_worker(_):
    import sys
    waits = any(type(one).__name__ == "ImportHook" for one in sys.meta_path)
    return f"{{waits}} {{'querypulse.sidecar' in sys.modules}}"
print("worker", spark.range(1).select(udf(in_worker)("id")).first()[0], flush=True)
print("same", SIDECARS.find(SparkSession.getActiveSession().sparkContext) is automatic, flush=True)
own = attach(spark, app_name="own")
print("own", own.settings.app_name, automatic.closed, SIDECARS.find(spark.sparkContext) is own)
spark.stop()

spark = builder.getOrCreate()
second = SIDECARS.find(spark.sparkContext)
by_hand = Sidecar(app_name="by hand")
spark.streams.addListener(by_hand.listener)
print("hand", second.closed, SIDECARS.find(spark.sparkContext) is by_hand, flush=True)
"""


def test_auto_attach_attaches_drivers_and_not_workers_and_yields_to_the_job(tmp_path):
    python = environment(tmp_path / "venv")
    settings = SETTINGS | {"QUERYPULSE_AUTO_ATTACH": "1", "PYSPARK_PYTHON": python}
    with job(AUTO, tmp_path, (python,), [], settings) as driver:
        code = driver.wait(240)
    assert code == 0, driver.errors
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


def job(script, folder, command, arguments, settings):
    """A driver whose Python command is ours; it passes ``arguments`` to the script."""
    return Driver(script, folder, header="", command=command, arguments=arguments, **settings)
