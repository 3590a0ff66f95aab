"""Many drivers: what they show, as values and served on loopback by one process.

``cd tests && python -m support.fleets 500 10`` serves so many, and prints the address of each; the
first ten accept connections and never answer. ``python -m support.fleets page PATH`` writes their page.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
from support.patience import WALL

from querypulse.watch.client import DriverAlert, DriverQuery
from querypulse.watch.fleet import DOWN, UNANSWERED, UP, Seen, SeenDriver, fleet_of
from querypulse.watch.page import page_of

TEAMS = ("payments", "orders", "search", "risk", "growth")
BROKER = "kafka://broker-1.example:9092"
QUERIES = 10
HOLD_SECONDS = 20.0
STARTS = "2023-11-14T21:13:20.000+00:00"
"""When alerts began: an hour before ``WALL``."""


def dataset(namespace, name):
    return {"namespace": namespace, "name": name}


def query(number, index, state="running"):
    """Query ``index`` of driver ``number``; its second one reads what the driver before writes."""
    reads = [dataset(BROKER, f"raw-{number}-{index}")]
    if index == 1 and number % 10:
        reads = [dataset("s3://lake", f"/silver/{number - 1}")]
    writes = [dataset("s3://lake", f"/silver/{number}")] if index == 1 else []
    return {
        "name": f"query_{index}",
        "state": state,
        "reason": "ConcurrentAppendException: files were added" if state == "failed" else "",
        "reads": reads,
        "writes": writes,
    }


def alert(name, query, severity="critical", cause="", **annotations):
    labels = {"alertname": name, "query": query, "severity": severity}
    return {
        "labels": labels,
        "annotations": {
            "summary": f"{query} has failed: the broker does not answer",
            **annotations,
        },
        "starts_at": STARTS,
        "cause": cause,
    }


def status_of(number):
    """``/status`` of a driver, as far as a watcher reads it: of a hundred, ten share one cause,
    one has failed for another reason, and one is slow.
    """
    states, alerts = ["running"] * QUERIES, []
    if number % 100 < 10:
        states[0] = "failed"
        alerts = [alert("StreamingQueryFailed", "query_0", cause=f"source unreachable: {BROKER}")]
    elif number % 100 == 20:
        states[1] = "failed"
        summary = "query_1 has failed: ConcurrentAppendException"
        alerts = [alert("StreamingQueryFailed", "query_1", cause="", summary=summary)]
    elif number % 100 == 30:
        states[2] = "slow"
        summary = "query_2 is slow: its batch takes 12 min, 4 min are usual"
        alerts = [alert("StreamingBatchSlow", "query_2", "warning", summary=summary)]
    return {
        "app": f"app-{number:03}",
        "labels": {"team": TEAMS[number % len(TEAMS)], "env": "prod"},
        "queries": [query(number, index, state) for index, state in enumerate(states)],
        "alerts": alerts,
        "monitor": {"heartbeat_timestamp": WALL, "receivers": ["webhook"], "outbox_pending": {}},
        "end_expected": False,
    }


def seen_driver(number, state=UP, **changes) -> SeenDriver:
    shown = status_of(number)
    return SeenDriver(
        **{
            "name": shown["app"],
            "url": f"http://app-{number:03}.example:9719",
            "state": state,
            "labels": shown["labels"],
            "queries": tuple(msgspec.convert(shown["queries"], list[DriverQuery])),
            "alerts": tuple(msgspec.convert(shown["alerts"], list[DriverAlert])),
            **changes,
        }
    )


def seen_fleet(count=500, **changes) -> Seen:
    """So many drivers, of which each hundredth, from number 40 on, is down."""
    drivers = []
    for number in range(count):
        drivers.append(seen_driver(number))
        if number % 100 == 40:
            detail = f"app-{number:03}.example port 9719 refused the connection"
            drivers[-1] = seen_driver(number, DOWN, detail=detail, since=WALL - 600)
        elif number % 100 == 41:
            detail = "it accepted the connection and did not answer GET /livez"
            drivers[-1] = seen_driver(number, UNANSWERED, detail=detail, since=WALL - 5)
    return Seen(**{"at": WALL, "drivers": tuple(drivers), **changes})


# -- served -----------------------------------------------------------------------------------


async def answer(number, reader, writer):
    with suppress(OSError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ", 2)[1]
        body = b"alive\n"
        if path == b"/watch":
            await asyncio.sleep(HOLD_SECONDS)
            body = b'{"status":"running"}'
        elif path == b"/status":
            body = json.dumps(status_of(number)).encode()
        size = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\n" + size + body)
        await writer.drain()
    writer.close()


async def serve(count, hanging):
    servers = []
    for number in range(count):

        async def handle(reader, writer, number=number):
            if number < hanging:
                await asyncio.Event().wait()
            await answer(number, reader, writer)

        servers.append(await asyncio.start_server(handle, "127.0.0.1", 0, backlog=64))
        print(f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}")
    print(flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "page":
        Path(sys.argv[2]).write_text(page_of(fleet_of(seen_fleet())), encoding="utf-8")
    else:
        asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
