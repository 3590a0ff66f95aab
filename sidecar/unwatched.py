"""What ``supervise`` does where nothing is watched, because of an internal error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .failure import QueryFailure
from .supervisions import Starts
from .supervisor import described

log = logging.getLogger("querypulse")


def run_unwatched(starts: Starts, redact_ours: Callable[[str], str]) -> None:
    """Start each query once, and wait until none of them is active. Nothing is restarted.

    Raises:
        QueryFailure: the first of those that did not start, or that failed.

    """
    failures: list[QueryFailure] = []

    def attempt(name: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - the other queries go on after any error
            failure = QueryFailure(name, described(error, redact_ours))
            failure.__cause__ = error
            failures.append(failure)
            log.error("querypulse: %s, and nothing restarts it", failure)  # noqa: TRY400 - redacted
            return None

    queries = {name: attempt(name, start) for name, start in starts.items()}
    for name, query in queries.items():
        if query is not None:
            attempt(name, query.awaitTermination)
    if failures:
        raise failures[0]
