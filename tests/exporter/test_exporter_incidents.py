"""``/incidents`` and ``/incidents/ID``, over real HTTP on loopback."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager

import msgspec
import pytest
from support.exporter_http import get, raw, serving
from support.patience import until
from support.published_states import full_published
from support.timelines import bare, hang

from querypulse.exporter import server as server_module
from querypulse.recording.lines import RecordingError
from querypulse.recording.timeline import Summary, Timeline

DAY = 86_400.0
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def recent(id_: str, *, days: float, lasted: float | None = 600.0) -> Timeline:
    """An incident that began so many days ago."""
    since = time.time() - days * DAY
    return bare(id=id_, since=since, until=None if lasted is None else since + lasted)


@contextmanager
def recorded(*timelines: Timeline, **access):
    """A server that knows these incidents."""
    by_id = {timeline.summary.id: timeline for timeline in timelines}

    def summaries():
        return [timeline.summary for timeline in timelines]

    with serving(full_published(), incidents=summaries, timeline=by_id.get, **access) as server:
        yield server


# -- what is not shown ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted",
    [
        "unknown",
        "",
        "..%2f..%2fetc%2fpasswd",
        "../../etc/passwd",
        "/etc/passwd",
        "A.jsonl",
        "a/../A",
        "A/",
        ".html",
        "%41",
        "A%00",
    ],
)
def test_only_the_id_of_a_known_incident_finds_one(wanted):
    with recorded(recent("A", days=1)) as server:
        # As it is, because a client would simplify the path.
        answer = raw(server, f"GET /incidents/{wanted} HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.0 404 ")
        assert b"etc" not in answer


def test_incidents_and_their_pages_need_the_token():
    with recorded(recent("A", days=1), token="t") as server:
        for path in ("/incidents", "/incidents/A", "/incidents/A.html"):
            assert get(server, path).status_code == 401
            assert get(server, path, Authorization="Bearer t").status_code == 200


def test_without_a_recorder_there_are_no_incidents():
    with serving(full_published()) as server:
        assert get(server, "/incidents").status_code == 404
        assert get(server, "/incidents/A").status_code == 404


def test_an_incident_whose_file_is_gone_is_not_found():
    summary = recent("A", days=1).summary
    with serving(full_published(), incidents=lambda: [summary], timeline=lambda _: None) as server:
        assert get(server, "/incidents/A").status_code == 404


# -- what is shown ----------------------------------------------------------------------------


def test_list_has_what_was_open_in_the_last_thirty_days_the_newest_first():
    shown = [
        recent("old", days=40),
        recent("long", days=40, lasted=20 * DAY),
        recent("open", days=50, lasted=None),
        recent("new", days=1),
    ]
    with recorded(*shown) as server:
        answer = get(server, "/incidents")
        assert answer.headers["Content-Type"] == "application/json"
        summaries = msgspec.json.decode(answer.content, type=list[Summary])
        assert [summary.id for summary in summaries] == ["new", "long", "open"]
        assert summaries[0] == shown[3].summary


def test_an_incident_is_json_unless_a_browser_asks():
    timeline = hang()
    path = f"/incidents/{timeline.summary.id}"
    with recorded(timeline) as server:
        plain = get(server, path)
        assert msgspec.json.decode(plain.content, type=Timeline) == timeline
        for page in (get(server, path, Accept=BROWSER), get(server, f"{path}.html")):
            assert page.headers["Content-Type"] == "text/html; charset=utf-8"
            assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
            assert timeline.summary.headline in page.text


def test_a_part_of_a_recording_leads_to_the_whole():
    timeline = bare(id="A", parts=("A", "A.2"))
    with recorded(timeline) as server:
        assert get(server, "/incidents/A.2").json()["summary"]["id"] == "A"
        assert get(server, "/incidents/A.2.html").status_code == 200


def test_an_incident_that_is_too_old_for_the_list_is_still_shown():
    old = bare(id="old")
    with serving(full_published(), incidents=list, timeline={"old": old}.get) as server:
        assert get(server, "/incidents").json() == []
        assert get(server, "/incidents/old.html").status_code == 200


# -- a store that does not answer -------------------------------------------------------------


@pytest.mark.fault(
    "Readers over HTTP",
    "The store of incidents hangs",
    "503 says so; every other path answers meanwhile",
)
def test_a_store_that_hangs_holds_up_no_other_path(monkeypatch):
    monkeypatch.setattr(server_module, "STORE_SECONDS", 0.1)
    released, asked = threading.Event(), []

    def incidents():
        asked.append(1)
        released.wait()
        return []

    with serving(full_published(), incidents=incidents) as server:
        answer = get(server, "/incidents")
        assert (answer.status_code, answer.json()) == (
            503,
            {"error": "the store of incidents does not answer"},
        )
        assert [get(server, path).status_code for path in ("/status", "/metrics", "/livez")] == [
            200,
            200,
            200,
        ]
        # Nobody waits for it again, and no further thread is held.
        assert [get(server, "/incidents/A").status_code for _ in range(20)] == [503] * 20
        assert len(asked) == 1
        released.set()
        until(lambda: get(server, "/incidents").status_code == 200, "the store answers again")


@pytest.mark.parametrize(
    "error",
    [
        OSError("s3a://key:hunter2secret@bucket is not reachable"),
        RecordingError("A.jsonl: not a recording of an incident"),
    ],
    ids=["store", "file"],
)
def test_a_store_that_refuses_is_said_in_words_without_secrets(error):
    def refuse(_=None):
        raise error

    with serving(full_published(), incidents=refuse, timeline=refuse) as server:
        for path in ("/incidents", "/incidents/A"):
            answer = get(server, path)
            assert answer.status_code == 503
            assert json.loads(answer.text)["error"].startswith("the incidents cannot be read: ")
            assert "hunter2" not in answer.text
