"""The cause of a finding, in words that are the same in each driver: what a fleet is grouped by.

``source_hung at s3://lake``: a code, the class of an error, and after `` at `` the place that other
queries need, too. It holds no id, number, time or name of a query. A place is named only where it
is proven that it is what is wrong: without one, equal causes of two queries are two problems.

A service that does not answer is one cause, ``outage at kafka://broker:9092``, whatever its clients
say and whatever the query does meanwhile.
"""

from __future__ import annotations

import re

from ..core.text import digest
from ..listener.failure import Failure
from ..listener.state.flow import TOPIC, Dataset, namespace_of, path_dataset, place_of
from . import facts
from .evidence import QueryEvidence
from .facts import Facts
from .finding import Finding
from .kinds import Code

AT = " at "
OUTAGE = "outage"
CAUSE_CHARACTERS = 120
_HASH_CHARACTERS = 8
FIRST_EPHEMERAL_PORT = 32_768
"""Linux gives ports from here on to clients, and to servers that ask for any, as executors do."""

_NO_ANSWER = re.compile(
    r"(?i)time(?:d[ -]?|-)?out|refused|unreachable|not reachable|no ?route ?to ?host|\breset\b"
    r"|disconnect|connect(?:ion)? ?exception|unknown ?host|failed to connect|does not answer"
    r"|\bresol(?:ve|ution)\b"
)
_NO_ACCESS = re.compile(r"(?i)authenti|authori[sz]|credential|denied|password|\bsasl\b|\bssl\b")
# What Kafka's clients say when no broker answers: they mostly name none.
_KAFKA_SILENT = re.compile(
    r"waiting for a node assignment|before the position for partition|fetching topic metadata"
    r"|before successfully committing|has passed since batch creation|No resolvable bootstrap urls"
    r"|disconnected before the response|[Dd]isconnect\w* from node"
)
_MAY_WAIT_FOR_SOURCE = frozenset(
    {
        *(Code.SOURCE_HUNG, Code.BATCH_HUNG, Code.TASK_RUNNING, Code.SILENT, Code.WORKING),
        *(Code.RETRYING, Code.OFFSETS_STUCK, Code.WAITED_TOO_LONG, Code.LAG_RISES),
    }
)
"""What a query may show whose broker does not answer; the poll of its source proves that."""


def cause_of(finding: Finding) -> str:
    """Return the cause of a finding, in one line of at most ``CAUSE_CHARACTERS``.

    The end of a longer one is a hash, so that no two causes become one.
    """
    cause = " ".join(_cause(finding).split())
    if len(cause) <= CAUSE_CHARACTERS:
        return cause
    end = digest(cause, _HASH_CHARACTERS)
    return f"{cause[: CAUSE_CHARACTERS - len(end) - 1]}…{end}"


def _cause(finding: Finding) -> str:
    found, query = finding.facts, finding.evidence.query
    if isinstance(found, facts.Unnamed):
        found = found.newest.facts
    if isinstance(found, facts.ShareCause):
        return found.cause.value
    if isinstance(found, facts.Reported):
        return f"{found.code.value}: {finding.alertname}"
    outage = _outage_of(found, query)
    if outage:
        return f"{OUTAGE}{AT}{outage}"
    detail = _detail(found, query)
    place = _place(found, query)
    words = f"{found.code.value}: {detail}" if detail else found.code.value
    return f"{words}{AT}{place}" if place else words


def _failure_in(found: Facts) -> Failure | None:
    if isinstance(found, (facts.Failed, facts.GivenUp, facts.PoisonBatch, facts.ManyFailures)):
        return found.failure
    return None


def _detail(found: Facts, query: QueryEvidence | None) -> str:
    """The class of the error; of slow batches, what makes them slow."""
    failure = _failure_in(found)
    if failure is not None:
        return failure.error_class
    if isinstance(found, (facts.PoisonBatch, facts.ManyFailures)):
        return found.error_class
    slow = None if query is None else query.slowness
    return slow.cause.cause.value if slow is not None and slow.cause is not None else ""


# -- outages ------------------------------------------------------------------------------------


def _outage_of(found: Facts, query: QueryEvidence | None) -> str:
    """The service that does not answer, if that is proven."""
    failure = _failure_in(found)
    datasets = () if query is None else (*query.inputs, *query.outputs)
    if failure is not None:
        return _silent_service(failure, datasets)
    cluster = "" if query is None else _only_cluster(query.inputs)
    if query is None or not cluster or not all(data.kind == TOPIC for data in query.inputs):
        return ""
    is_silent = _NO_ANSWER.search(query.sources_unread) is not None
    waits = isinstance(found, facts.SourceHung)
    return cluster if waits or (is_silent and found.code in _MAY_WAIT_FOR_SOURCE) else ""


def _silent_service(failure: Failure, datasets: tuple[Dataset, ...]) -> str:
    """Who did not answer when the run failed: a broker of the query, or a host and its port."""
    text = f"{failure.exception}: {failure.message}"
    if _NO_ACCESS.search(text) is not None:
        return ""
    if _NO_ANSWER.search(text) is not None:
        for dataset in datasets:
            if dataset.kind == TOPIC and _names_broker(failure, dataset.owners):
                return namespace_of(dataset)
        if ":" in failure.place and not _is_ephemeral(failure.place):
            return failure.place
    # Code of the user has clients of its own.
    is_of_spark = not failure.raised_at.line
    return _only_cluster(datasets) if is_of_spark and _KAFKA_SILENT.search(text) else ""


def _names_broker(failure: Failure, brokers: tuple[str, ...]) -> bool:
    hosts = {broker.rpartition(":")[0] for broker in brokers}
    return failure.place in {*brokers, *hosts} or any(
        broker in failure.message.lower() for broker in brokers
    )


def _is_ephemeral(place: str) -> bool:
    port = place.rpartition(":")[2]
    return port.isdecimal() and int(port) >= FIRST_EPHEMERAL_PORT


def _only_cluster(datasets: tuple[Dataset, ...]) -> str:
    """The only Kafka cluster among these; empty if there are several, or one is not known."""
    clusters = {dataset.owners for dataset in datasets if dataset.kind == TOPIC}
    if len(clusters) != 1 or not all(clusters):
        return ""
    return namespace_of(next(dataset for dataset in datasets if dataset.kind == TOPIC))


# -- other places -------------------------------------------------------------------------------


def _place(found: Facts, query: QueryEvidence | None) -> str:
    """What is wrong for all that need it; empty where that is not proven."""
    failure = _failure_in(found)
    if failure is not None:
        return "" if _is_ephemeral(failure.place) else failure.place
    inputs = () if query is None else query.inputs
    if isinstance(found, facts.FolderGone):
        folder = path_dataset(found.folder)
        return found.folder if folder is None else place_of(folder)
    if isinstance(found, facts.OpenTransaction):
        topic = found.partition.rpartition("/")[0]
        named = [data for data in inputs if data.kind == TOPIC and data.name == topic]
        return place_of(named[0]) if len(named) == 1 and named[0].owners else ""
    is_of_source = isinstance(found, facts.SourceHung) or (
        isinstance(found, facts.OffsetsWentBack) and bool(found.ends_before)
    )
    return place_of(inputs[0]) if is_of_source and len(inputs) == 1 else ""
