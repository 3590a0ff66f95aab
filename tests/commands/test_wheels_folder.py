"""``make wheels`` makes what is installed without an index, and what is uploaded: it works alone."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.metadata import version

import pytest
from support.demo import unwrapped
from support.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

DEMO = ("--scenario", "failure", "--after", "5", "--queries", "2")


def run(*command, folder=None):
    kept = {key: text for key, text in os.environ.items() if not key.startswith("QUERYPULSE_")}
    kept.pop("PYTHONPATH", None)
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=kept, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.fault(
    "Installation",
    "An environment with nothing but the folder of wheels and PySpark",
    "The demo pages, and the extras are there",
)
def test_folder_of_wheels_is_enough_for_the_demo(tmp_path):
    run("make", "wheels", f"PYTHON={sys.executable}", folder=ROOT)
    venv.create(tmp_path / "alone", with_pip=True)
    programs = tmp_path / "alone" / "bin"
    wheels = ("--no-index", "--find-links", ROOT / "build" / "wheels")
    run(programs / "python", "-m", "pip", "install", "-q", *wheels, "querypulse[replay,otlp]")
    spark = f"pyspark=={version('pyspark')}"
    uv = ROOT / ".venv" / "bin" / "uv"
    run(uv, "pip", "install", "-q", "--python", programs / "python", spark, folder=tmp_path)

    where = run(programs / "python", "-Ic", "import querypulse; print(querypulse.__file__)")
    assert where.startswith(str(tmp_path))
    output = run(programs / "querypulse", "demo", *DEMO, folder=tmp_path)
    assert "alertname    StreamingQueryFailed" in unwrapped(output)
    assert "result             as expected" in output
