"""Keeps what a query reads and writes up to date. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from .places import PlanPlaces, places_of
from .query import Query

NO_PLAN = PlanPlaces()


def with_places(query: Query) -> Query:
    """The query with the places of its newest progress and plan; itself if they are the same."""
    idle = query.probed.idle_progress if query.probed is not None else None
    progress, facts = query.progress or idle, query.facts
    described = progress.sink if progress is not None else ""
    sink = described or (facts.sink if facts is not None else "")
    plan = facts.plan if facts is not None else NO_PLAN
    places = places_of(query.places, sink, progress, plan)
    return query if places is query.places else replace(query, places=places)
