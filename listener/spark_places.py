"""Reads the places that only a run's plan shows: Iceberg's tables, Kafka's brokers and its topic.

``StreamExecution.analyzedPlan`` is what ``start()`` was called on; its leaves are
``StreamingRelationV2`` for sources of the current API. ``extraOptions`` are the sink's options, a
private field. Both are stable in Spark 3.5 to 4.3. A run is read once, with up to ten calls for
each source. Of the options only the brokers and the topic are taken.
"""

from __future__ import annotations

from typing import Any

from ..core.redaction import redact
from .places import TABLE, TOPIC, Place, PlanPlaces, brokers_of

MAX_SOURCES = 20
_SERVERS = "kafka.bootstrap.servers"


def plan_places(java: Any) -> PlanPlaces:
    """The places that the plan of this ``StreamExecution`` shows.

    Raises:
        Exception: Spark refuses to show it.

    """
    leaves = java.analyzedPlan().collectLeaves()
    tables: list[Place] = []
    brokers: list[tuple[str, ...]] = []
    for index in range(min(int(leaves.size()), MAX_SOURCES)):
        leaf = leaves.apply(index)
        if str(leaf.getClass().getSimpleName()) != "StreamingRelationV2":
            continue
        if str(leaf.sourceName()).lower() == "kafka":
            brokers.append(brokers_of(str(leaf.extraOptions().get(_SERVERS) or "")))
        elif "." in (name := redact(str(leaf.table().name()))):
            tables.append(Place(TABLE, name))
    return PlanPlaces(tuple(tables), (), tuple(brokers))


def kafka_sink(java: Any) -> PlanPlaces:
    """The topic that a Kafka sink writes to; nothing if each row names its own.

    Raises:
        Exception: Spark refuses to show it.

    """
    options = _sink_options(java)
    topic, servers = _option(options, "topic"), _option(options, _SERVERS)
    return PlanPlaces(writes=(Place(TOPIC, topic, brokers_of(servers)),) if topic else ())


def _sink_options(java: Any) -> Any:
    declaring = java.getClass()
    while str(declaring.getSimpleName()) not in ("MicroBatchExecution", "ContinuousExecution"):
        declaring = declaring.getSuperclass()
    field = declaring.getDeclaredField("extraOptions")
    field.setAccessible(True)
    return field.get(java)


def _option(options: Any, name: str) -> str:
    found = options.get(name)
    return str(found.get()) if found.isDefined() else ""
