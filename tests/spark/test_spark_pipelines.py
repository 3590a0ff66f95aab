"""Declarative pipelines on real Spark: which flows are reported, whichever way we attach."""

from __future__ import annotations

import pytest
from support.auto_attach import auto_attaching_python
from support.connect_command import served
from support.driver import Driver
from support.pages import PageRecorder
from support.pipeline import BROKEN, DEFINITIONS, IS_HERE, flow, run_pipeline

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not IS_HERE, reason="Spark has pipelines from 4.1 on"),
]
ATTACHES = """
from querypulse import attach
assert attach(spark) is attach(spark)
"""
OTHERS = "".join(
    f'@dp.table(name="gold_{number}")\ndef gold_{number}():\n    return rows()\n'
    for number in range(5)
)
"""With ``DEFINITIONS`` and one more, eight flows."""
HELD = """
@dp.table
def held():
    return rows().withColumn("x", expr("java_method('java.lang.Thread', 'sleep', 600000L)"))
"""
"""A flow whose first batch lasts ten minutes."""
FAILED = ("firing", "StreamingQueryFailed", flow("broken"))


def settings(pages: PageRecorder, **more: str) -> dict[str, str]:
    return {
        "QUERYPULSE_WEBHOOK_URL": pages.url,
        "QUERYPULSE_HTTP_PORT": "-1",
        "QUERYPULSE_APP_NAME": "flows",
        # A busy machine takes long for a batch.
        "QUERYPULSE_STALL_FLOOR_SECONDS": "300",
        **more,
    }


def said_after_its_end(pipeline: Driver) -> str:
    """What a pipeline with a broken flow printed; Spark has tried that one three times."""
    code = pipeline.wait()
    text = "\n".join([*pipeline.lines, pipeline.errors])
    assert code == 1, text
    assert text.count(f"Flow {flow('broken')} is STARTING") > 1, text
    assert f"Flow {flow('silver')} has COMPLETED" in text
    return text


def test_flow_that_fails_is_paged_once_and_those_that_complete_never(pages, tmp_path):
    """With ``attach`` in a definitions file, where the session is one of Spark Connect."""
    definitions = DEFINITIONS + BROKEN + ATTACHES
    with run_pipeline(definitions, tmp_path, **settings(pages)) as pipeline:
        text = said_after_its_end(pipeline)

    assert pages.reported == [FAILED], text
    assert "no such order" in pages.pages[0].annotations["reason"]


@pytest.mark.nightly
def test_auto_attach_pages_the_one_of_eight_flows_that_dies(pages, tmp_path):
    python = auto_attaching_python(tmp_path / "venv")
    definitions = DEFINITIONS + OTHERS + BROKEN
    environment = settings(pages, QUERYPULSE_AUTO_ATTACH="1")
    with run_pipeline(definitions, tmp_path, python=python, **environment) as pipeline:
        text = said_after_its_end(pipeline)

    assert pages.reported == [FAILED], text
    assert "not on Spark's bus" not in text


@pytest.mark.nightly
def test_server_pages_the_flow_of_a_client_that_dies_and_the_client_none(pages, tmp_path):
    """Of eight flows; the client attaches, too: the server shows it no end of a flow."""
    (server_folder := tmp_path / "server").mkdir()
    (folder := tmp_path / "client").mkdir()
    definitions = DEFINITIONS + OTHERS + BROKEN + ATTACHES
    with PageRecorder() as of_client, served(server_folder, **settings(pages)) as server:
        given = settings(of_client, QUERYPULSE_APP_NAME="client")
        with run_pipeline(definitions, folder, remote=server.remote, **given) as pipeline:
            text = said_after_its_end(pipeline)
        assert pages.reported == [FAILED], text
        assert server.end() == 0

    assert pages.reported == [FAILED]
    assert of_client.reported == []


@pytest.mark.nightly
def test_flow_that_hangs_is_paged_under_its_name_with_the_task_that_it_waits_for(pages, tmp_path):
    definitions = DEFINITIONS + HELD + ATTACHES
    waits = {"QUERYPULSE_STALL_FLOOR_SECONDS": "20", "QUERYPULSE_START_GRACE_SECONDS": "20"}
    with run_pipeline(definitions, tmp_path, **settings(pages, **waits)):
        page = pages.wait_for("StreamingQueryStalled", flow("held"))

    assert "1 task running (partition 0 of stage" in page.annotations["reason"]
