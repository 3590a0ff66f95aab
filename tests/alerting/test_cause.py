"""The cause of a finding is the same in each driver, and names only a place that is proven."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from support.found import EVIDENCES, FLIGHT, FOUND, evidence
from support.story import Story, run, source

from querypulse.alerting import facts, kinds
from querypulse.alerting.cause import AT, CAUSE_CHARACTERS, cause_of
from querypulse.alerting.facts import Place
from querypulse.alerting.finding import Finding, Severity, finding_about
from querypulse.alerting.kinds import Code
from querypulse.listener.failure import describe_failure
from querypulse.listener.probe_report import Moves, ProbedRun
from querypulse.listener.state.flow import PATH, TABLE, TOPIC, Dataset, PlanDatasets

ORDERS = Dataset(TOPIC, "orders", ("b1:9092", "b2:9092"))
CLICKS = Dataset(TOPIC, "clicks", ("b1:9092", "b2:9092"))
ELSEWHERE = Dataset(TOPIC, "orders", ("c1:9092",))
UNKNOWN = Dataset(TOPIC, "orders")
BRONZE = Dataset(PATH, "/bronze", ("s3://lake",))
SILVER = Dataset(TABLE, "lake.db.silver")
OUTAGE = "outage at kafka://b1:9092"
WITHOUT_FINDING = {Code.NOT_EVALUATED, Code.NOT_SEEN_YET, Code.RESTARTING, Code.UPSTREAM}


def found(
    what: facts.Facts,
    *,
    name: str = kinds.QUERY_FAILED,
    query: str = "a",
    inputs=(),
    outputs=(),
    unread: str = "",
) -> Finding:
    seen = evidence()
    known = replace(seen.query, inputs=inputs, outputs=outputs, sources_unread=unread)
    return finding_about(query, name, Severity.CRITICAL, what, replace(seen, query=known))


def failed(text: str, **known) -> str:
    failure = describe_failure(f"{text}\n\tat x.Y.z(Y.scala:1)")
    return cause_of(found(facts.Failed(failure=failure), **known))


def test_each_code_of_a_finding_has_a_cause_without_digits_of_its_own():
    """Digits are those of ids, batches, offsets, times and sizes in the facts."""
    codes = set()
    for name, every in FOUND.items():
        for what in every:
            for given in EVIDENCES:
                finding = finding_about("query-7", name, Severity.CRITICAL, what, given)
                cause = cause_of(finding)
                codes.add(what.code)
                assert cause, name
                assert re.search(r"\d|query-7", cause) is None, cause

    assert codes == set(Code) - WITHOUT_FINDING


def test_queries_without_a_name_have_the_cause_of_the_newest():
    failure = describe_failure("java.net.ConnectException: Connection refused: store/10.0.0.7:9000")
    newest = facts.Member("u-1", facts.Failed(failure=failure))
    several = facts.Unnamed(newest=newest, others=(), count=1)

    assert cause_of(found(several)) == cause_of(found(newest.facts)) == "outage at store:9000"


# -- one outage ---------------------------------------------------------------------------------

SAYS_THAT_KAFKA_IS_AWAY = [
    "KafkaException: Connection to node -1 (b2/10.0.0.9:9092) could not be established: refused",
    "KafkaError: bootstrap broker b1:9092 (id: -1 rack: null) disconnected",
    "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. "
    "Call: describeTopics",
    "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired before the "
    "position for partition orders-17 could be determined",
    "org.apache.kafka.common.errors.TimeoutException: Timeout expired while fetching topic metadata",
    "org.apache.kafka.common.errors.DisconnectException: Cancelled request with header X due to "
    "node 1 being disconnected before the response was read",
    "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in "
    "bootstrap.servers",
    "java.net.UnknownHostException: b1",
    "org.apache.kafka.common.errors.TimeoutException: Expiring 12 record(s) for orders-0:120001 ms "
    "has passed since batch creation",
]


@pytest.mark.parametrize("text", SAYS_THAT_KAFKA_IS_AWAY)
def test_failures_of_one_broker_have_one_cause_whatever_the_client_says(text):
    assert failed(text, inputs=(ORDERS,), outputs=(BRONZE,)) == OUTAGE
    assert failed(text, inputs=(BRONZE,), outputs=(CLICKS,)) == OUTAGE


@pytest.mark.parametrize("text", SAYS_THAT_KAFKA_IS_AWAY)
def test_outage_is_none_of_a_broker_that_is_not_known_or_not_the_only_one(text):
    for known in ((), (UNKNOWN,), (BRONZE,)):
        assert "kafka://" not in failed(text, inputs=known)
    both = failed(text, inputs=(ELSEWHERE,), outputs=(CLICKS,))
    assert both == OUTAGE if re.search(r"\bb[12]\b", text) else AT not in both


STUCK = [
    facts.SourceHung(step="getting offsets", seconds=70, place=Place()),
    facts.BatchHung(flight=FLIGHT, still_seconds=70, place=Place()),
    facts.TaskRunning(flight=FLIGHT, still_seconds=70, tasks=1),
    facts.Silent(seconds=70),
    facts.BatchSlow(flight=FLIGHT, moves=Moves.TASKS),
    facts.WaitedTooLong(partition="orders/0", seconds=900, allowed=300),
    facts.LagRises(unit="offsets", first=1, newest=9000, seconds=400, allowed=1000),
]
SILENT = "TimeoutException: Call(callName=listOffsets) timed out"


@pytest.mark.parametrize("what", STUCK, ids=lambda what: what.code.value)
def test_query_that_hangs_or_lags_has_the_cause_of_its_broker_if_that_does_not_answer(what):
    assert cause_of(found(what, inputs=(ORDERS, CLICKS), unread=SILENT)) == OUTAGE


@pytest.mark.parametrize("what", STUCK[1:], ids=lambda what: what.code.value)
@pytest.mark.parametrize(
    ("inputs", "unread"),
    [
        ((ORDERS,), ""),
        ((ORDERS,), "GroupAuthorizationException: not permitted"),
        ((ORDERS, ELSEWHERE), SILENT),
        ((ORDERS, BRONZE), SILENT),
        ((UNKNOWN,), SILENT),
        ((), SILENT),
    ],
)
def test_query_that_hangs_or_lags_has_its_own_cause_where_nothing_proves_an_outage(
    what, inputs, unread
):
    assert cause_of(found(what, inputs=inputs, unread=unread)) == what.code.value


@pytest.mark.parametrize(
    "what",
    [
        facts.WaitingForSlots(flight=FLIGHT, still_seconds=70, slots=None),
        facts.NoExecutors(flight=FLIGHT, still_seconds=70),
        facts.WatermarkStuck(seconds=400, batches=9),
    ],
    ids=lambda what: what.code.value,
)
def test_what_no_source_explains_is_no_outage_of_one(what):
    assert cause_of(found(what, inputs=(ORDERS,), unread=SILENT)) == what.code.value


def test_query_that_waits_for_a_source_names_the_only_one():
    what = STUCK[0]

    assert cause_of(found(what, inputs=(ORDERS,))) == OUTAGE
    assert cause_of(found(what, inputs=(BRONZE,))) == "source_hung at s3://lake/bronze"
    assert cause_of(found(what, inputs=(BRONZE, SILVER))) == "source_hung"
    assert cause_of(found(what)) == "source_hung"


# -- places -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (
            "outage at store:8020",
            "ConnectException: Call From d-7/10.1.1.1 to store:8020 failed on x",
        ),
        (
            "outage at store:8020",
            "NoRouteToHostException: No Route to Host from d to store:8020 failed",
        ),
        ("outage at db:5432", "PSQLException: Connection to db:5432 refused. Check the hostname"),
        (
            "failed: OperationalError at db:5432",
            'OperationalError: connection to server at "db", port 5432 failed: password authentication',
        ),
        (
            "failed: ConcurrentAppendException at fleet.alerts",
            "io.delta.ConcurrentAppendException: a concurrent MERGE added data to table "
            "spark_catalog.fleet.alerts committed at version 7",
        ),
        (
            "failed: AWSS3IOException at bucket",
            "AWSS3IOException: getFileStatus on s3a://bucket/orders/17.json: Slow Down",
        ),
        ("failed: ValueError", "ValueError: negative amount 12"),
        ("failed: TimeoutException", "java.util.concurrent.TimeoutException: Futures timed out"),
        # the block manager of an executor, which has another port in its next life
        ("failed: IOException", "java.io.IOException: Failed to connect to /10.1.2.3:41234"),
    ],
)
def test_failure_has_its_class_and_the_place_that_it_names(cause, text):
    assert failed(text, inputs=(ORDERS,)) == cause


def test_code_of_the_user_has_clients_of_its_own():
    text = (
        "PythonException: Traceback (most recent call last):\n"
        '  File "/jobs/billing.py", line 17, in charge\n'
        "    producer.flush()\n"
        "kafka.errors.KafkaTimeoutError: Timed out waiting for a node assignment\n"
    )

    assert failed(text, inputs=(ORDERS,)) == "failed: KafkaTimeoutError"


def test_source_that_has_changed_for_all_is_a_place_and_what_one_query_did_is_none():
    ends = facts.OffsetsWentBack(ends_before=(facts.EndsBefore("Kafka", 3, 9),))
    went = facts.OffsetsWentBack(went_back=(facts.WentBack("Kafka", 9, 3),))
    held = facts.OpenTransaction(partition="clicks/0", records=4, seconds=70, partitions=1)
    gone = facts.FolderGone(folder="s3a://lake/in", source="files", seconds=400)

    assert cause_of(found(ends, inputs=(ORDERS,))) == "offsets_went_back at kafka://b1:9092/orders"
    assert cause_of(found(went, inputs=(ORDERS,))) == "offsets_went_back"
    clicks = cause_of(found(held, inputs=(ORDERS, CLICKS)))
    assert clicks == "open_transaction at kafka://b1:9092/clicks"
    assert cause_of(found(held, inputs=(UNKNOWN,))) == "open_transaction"
    assert cause_of(found(gone)) == "folder_gone at s3://lake/in"


def test_long_cause_is_cut_and_stays_different_from_its_like():
    causes = {
        failed(f"X: a MERGE added data to table {'t' * 90}.{'u' * 90}{end}") for end in ("a", "b")
    }

    assert len(causes) == 2
    assert {len(cause) for cause in causes} == {CAUSE_CHARACTERS}


# -- of a query as Spark shows it -----------------------------------------------------------------

NO_NODE = f"{SAYS_THAT_KAFKA_IS_AWAY[2]}\n\tat x.Y.z(Y.scala:1)"


def cause_in(story: Story) -> str:
    (finding,) = story.evaluate(101).findings
    assert finding.words is not None
    return finding.words.cause


def planned(*brokers: str) -> ProbedRun:
    seen = run()
    plan = PlanDatasets(brokers=tuple((broker,) for broker in brokers))
    return replace(seen, facts=replace(seen.facts, plan=plan))


def test_run_that_fails_before_its_first_batch_is_known_by_the_brokers_of_its_plan():
    story = Story().started(at=0).probe(planned("b1:9092"), at=5)

    assert cause_in(story.ended(at=100, exception=NO_NODE)) == OUTAGE


def test_run_that_has_committed_is_known_by_what_it_read():
    story = Story().started(at=0).probe(planned("b1:9092"), at=5)
    topic = source({"t": {"0": 5}}, description="KafkaV2[Subscribe[t]]")
    story.commit(batch=1, at=90, sources=(topic,))

    assert cause_in(story.ended(at=100, exception=NO_NODE)) == OUTAGE


def test_run_of_two_clusters_has_no_place_where_the_error_names_none():
    story = Story().started(at=0).probe(planned("b1:9092", "c1:9092"), at=5)

    assert cause_in(story.ended(at=100, exception=NO_NODE)) == "failed: TimeoutException"
