"""Published states for tests of the exporter: stories, evaluated by the real rules, and their metrics."""

from __future__ import annotations

from msgspec.structs import replace
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from support.patience import WALL
from support.story import CONFLICT, Story, processing, progress

from querypulse.alerting.evidence import LikelyCause, SlowCause, Slowness
from querypulse.alerting.finding import QueryHealth
from querypulse.alerting.words.evidence import likely_cause_text
from querypulse.alerting.words.messages import Guidance, alert_of
from querypulse.exporter.exposition import as_openmetrics, as_text, base_name, printable
from querypulse.exporter.metrics import all_families
from querypulse.exporter.published_state import (
    CALLBACK_BUCKETS,
    PROBE_BUCKETS,
    Monitor,
    Process,
    PublishedState,
    RecordingFolder,
    iso,
)
from querypulse.listener.events import Observed, SourceProgress
from querypulse.listener.foresight.filling import Series, follow
from querypulse.listener.foresight.intake import Intake, Mark
from querypulse.listener.foresight.operators import StateOperator
from querypulse.listener.foresight.resources import Container, Disk, Heap, Resources, Usage
from querypulse.listener.foresight.tasks import QueryTasks, TaskSums
from querypulse.listener.probe_report import FullQueue
from querypulse.listener.state.flow import TOPIC, Dataset, Flow
from querypulse.listener.state.freshness import DAY_SECONDS, Freshness, Promise
from querypulse.listener.state.query import Query

PROCESS = Process("4711-aa6f8a24c3d1", iso(WALL - 3600))

CALLBACKS = CALLBACK_BUCKETS.add([0.000_005, 0.000_005, 0.5])
PROBES = PROBE_BUCKETS.add([0.02, 0.3])
MONITOR = Monitor(
    heartbeat_timestamp=WALL - 0.5,
    listener_path="bus_queue",
    listener_registered=True,
    reregistrations=1,
    other_listeners=(str(FullQueue("streams", 95, "com.acme.Slow", ("com.acme.Slow",))),),
    mailbox_depth=3,
    events={"started": 2, "progress": 40},
    events_dropped={"progress_queue_full": 7},
    internal_errors={"worker": 1},
    probe_age_seconds=0.25,
    sources_unread={"busy": "no answer from the broker"},
    deliveries={"webhook": {"delivered": 5, "transient": 2}, "pagerduty": {}},
    outbox_pending={"webhook": 1},
    alerts_lost={"webhook": {}, "pagerduty": {"rejected": 1}},
    circuits_open={"webhook": True, "pagerduty": False},
    spool_problem="/spool: no space left on device",
    recordings=RecordingFolder(
        place="/incidents", failures=4, problem="/incidents: no space left on device"
    ),
    file_problems={"silences": "no answer for 12 s"},
    app_name_problem="the app is called 'pyspark-shell'",
    receivers=("webhook", "pagerduty"),
    callback_duration_seconds=CALLBACKS.timing(),
    probe_duration_seconds=PROBES.timing(),
)


def published(
    story=None,
    *,
    now=100.0,
    expected=(),
    monitor=MONITOR,
    app="shop",
    overrides=(),
    by_partition=True,
) -> PublishedState:
    story = story or Story()
    evaluation = story.evaluate(now, expected=expected, overrides=overrides)
    return PublishedState(
        app=app,
        spark_version="4.0.0",
        snapshot=story.snapshot(now),
        health=evaluation.health,
        alerts=tuple(
            alert_of(finding, app, Guidance("https://runbooks.example/{alertname}.md"), WALL)
            for finding in evaluation.findings
        ),
        monitor=monitor,
        wall=WALL,
        process=PROCESS,
        expected=tuple(expected),
        lag_by_partition=by_partition,
        flow=evaluation.flow,
        callback_durations=CALLBACKS,
        probe_durations=PROBES,
    )


def full_story() -> Story:
    """At 100 s: ``busy`` runs batch 8, and batch 7 is not in its log yet; ``dead`` has failed."""
    story = Story().supervised("busy", restarts=2).started("busy", at=10).started("dead", at=20)
    batch = progress(
        "busy",
        batch=7,
        seconds=2.0,
        phase_seconds={"addBatch": 1.5, "walCommit": 0.1},
        input_rows=1000,
        output_rows=900,
        input_rows_per_second=50.0,
        processed_rows_per_second=500.0,
        watermark_timestamp=WALL - 60,
        state_rows=12,
        state_memory_bytes=4096,
        late_rows=3,
        operators=(
            StateOperator(
                "dedupe",
                rows=12,
                rows_updated=4,
                rows_removed=1,
                rows_dropped=3,
                memory_bytes=4096,
                commit_seconds=0.25,
                custom='{"rocksdbSstFileSize": 8192, "rocksdbReadBlockCacheHitCount": 90, '
                '"SnapshotLastUploaded.partition_3_default": 5}',
            ),
        ),
        observed=(Observed("orders", "amount_sum", 99.5),),
        sources=(
            SourceProgress("KafkaV2[Subscribe[orders]]", 30.0),
            SourceProgress("DeltaSource[/in]", None, backlog_files=8.0, backlog_bytes=3456.0),
            SourceProgress("KafkaV2[Subscribe[orders]]", 12.0),
        ),
    )
    story.state.apply_event(batch, 70)
    story.probe(
        processing(
            "busy",
            batch=8,
            trigger="ProcessingTimeTrigger(10000)",
            async_progress=True,
            finished=QueryTasks(TaskSums(40, 90.0, 30.0, 2.5, 0.5, 4096, 2048, 1024)),
        ),
        processing("dead", batch=0),
        at=80,
        unowned=TaskSums(4, 12.0, 10.0),
    )
    story.log("busy", at=81, planned=6, committed=6)
    for at in (60, 75, 90):
        story.ask("busy", at=at, committed=970, latest=1000, since=40, keeps=600)
    story.completed_before("dead", at=-3600)
    return story.ended("dead", at=90, exception=CONFLICT)


def full_published(**changes) -> PublishedState:
    """``full_story``, and ``absent``, which is expected and was never seen; ``dead`` feeds busy."""
    overrides = (
        ("busy", {"expected_input_seconds": 3600.0}),
        ("absent", {"complete_by": "06:00"}),
    )
    shown = published(
        full_story(), **{"expected": ("busy", "absent"), "overrides": overrides, **changes}
    )
    orders = (Dataset(TOPIC, "orders", ("kafka-1:9092",)),)
    flow = Flow(
        upstream={"busy": ("dead",)},
        downstream={"dead": ("busy",)},
        inputs={"busy": orders},
        outputs={"dead": orders},
    )
    snapshot = replace(shown.snapshot, queries=tuple(map(_caught_up, shown.snapshot.queries)))
    snapshot = replace(snapshot, resources=RESOURCES, usage=Usage(after_gc=leak()))
    health = {**shown.health, "busy": _slow(shown.health["busy"])}
    return replace(
        shown,
        flow=flow,
        passed={"busy": 60.0},
        snapshot=snapshot,
        health=health,
        freshness={"busy": FRESHNESS},
        instance="driver-a:9719",
    )


def _slow(health: QueryHealth) -> QueryHealth:
    cause = LikelyCause(cause=SlowCause.PLANNING, explained_seconds=25.0)
    slow = Slowness(
        batch_id=7, seconds=30.0, usual_seconds=4.0, rows=None, usual_rows=10.0, cause=cause
    )
    return replace(health, slowness=slow, likely_cause=likely_cause_text(cause))


RESOURCES = Resources(
    at=90.0,
    heap=Heap(
        used_bytes=450_000_000,
        after_gc_bytes=420_000_000,
        max_bytes=500_000_000,
        gc_seconds=12.5,
        collections=40,
        at=90.0,
    ),
    container=Container(900_000_000, 1_000_000_000),
    disks=(Disk("/data", ("checkpoint of busy", "spool_dir"), 2_000_000_000, 9_000_000_000),),
)


FRESHNESS = Freshness(
    promise=Promise(600.0, 0.99),
    counted_at=100.0,
    complete_until=68.0,
    total_seconds=7200.0,
    bad_seconds=300.0,
    bad_by_day={int(WALL // DAY_SECONDS): 300.0},
)


def leak() -> Series:
    """What the collections of ``RESOURCES`` left: the heap is full in about three minutes."""
    series = Series()
    for seconds in range(0, 901, 10):
        series = follow(series, 90.0 - 900 + seconds, 10_000_000 + seconds * 455_555)
    return series


def _caught_up(query: Query) -> Query:
    intake = Intake("offset", 90.0, 100.0, 0.0, 0.0, (Mark(90.0, 100.0, 90.0, 100.0),))
    checkpoint = replace(query.checkpoint, intakes={0: intake} if query.label == "busy" else {})
    return replace(query, checkpoint=checkpoint)


class Collector:
    """All families as ``prometheus_client`` has them."""

    def __init__(self, shown):
        self._shown = shown

    def collect(self):
        for family in all_families(self._shown):
            metric = Metric(base_name(family), family.documentation, family.kind)
            for name, names, values, figure in family.samples:
                labels = dict(zip(names, map(printable, values), strict=True))
                metric.add_sample(name, labels, figure)
            yield metric


def text(shown) -> str:
    return as_text(all_families(shown)).decode()


def om_text(shown) -> str:
    return as_openmetrics(all_families(shown)).decode()


def samples(shown, parse=parse_text, render=text):
    return [sample for family in parse(render(shown)) for sample in family.samples]


FORMATS = [(parse_text, text), (parse_openmetrics, om_text)]


def values(shown, name, **labels):
    """Values of one metric, by the labels that are not in ``labels``."""
    result = {}
    for sample in samples(shown):
        if sample.name == name and labels.items() <= sample.labels.items():
            rest = tuple(v for k, v in sorted(sample.labels.items()) if k not in labels)
            assert rest not in result
            result[rest] = sample.value
    return result


def of_query(shown, query, name):
    return values(shown, f"spark_streaming_query_{name}", app="shop", query=query)
