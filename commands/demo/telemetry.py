"""A fleet of vehicles that keeps sending telemetry."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

SCHEMA = "vehicle string, kind string, value double, alert_id string, action string"
KINDS = ("position", "battery", "trip", "engine", "door", "tire")
VEHICLES = 12
ROWS_AT_ONCE = 30
SECONDS_BETWEEN = 1.0


def telemetry(seed: int = 1) -> Iterator[list[dict[str, object]]]:
    """Endless batches of readings; alerts are created and, some batches later, resolved."""
    dice = random.Random(seed)  # noqa: S311 - a demo's data, not a secret
    opened: list[str] = []
    number = 0
    while True:
        rows: list[dict[str, object]] = [_reading(dice) for _ in range(ROWS_AT_ONCE)]
        number += 1
        opened.append(f"alert-{number}")
        rows.append(_alert(dice, opened[-1], "CREATE"))
        if len(opened) > dice.randint(1, 4):
            rows.append(_alert(dice, opened.pop(0), "RESOLVE"))
        yield rows


def _reading(dice: random.Random) -> dict[str, object]:
    vehicle = f"vehicle-{dice.randrange(VEHICLES)}"
    return {"vehicle": vehicle, "kind": dice.choice(KINDS), "value": dice.uniform(0, 100)}


def _alert(dice: random.Random, alert_id: str, action: str) -> dict[str, object]:
    return {**_reading(dice), "kind": "alert", "alert_id": alert_id, "action": action}


class Fleet:
    """Sends readings once a second, in its own thread, until it is stopped."""

    def __init__(self, send: Callable[[list[dict[str, object]]], None]) -> None:
        self._send = send
        self._parked = threading.Event()
        self._thread = threading.Thread(target=self._drive, name="demo-fleet", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending."""
        self._parked.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _drive(self) -> None:
        for rows in telemetry():
            self._send(rows)
            if self._parked.wait(SECONDS_BETWEEN):
                return


class FileDrop:
    """Writes readings to a folder, each time as a new file of JSON lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = len(list(folder.iterdir()))

    def __call__(self, rows: list[dict[str, object]]) -> None:
        """Write one file."""
        name = f"{self._number:06}.json"
        self._number += 1
        # Spark must never see half a file.
        hidden = self._folder / f".{name}"
        hidden.write_text("\n".join(json.dumps(row) for row in rows))
        hidden.rename(self._folder / name)
