"""The settings of the rules: which queries, and when an alert fires."""

from __future__ import annotations

from tools.settings.setting import Setting, SettingGroup

JOB = SettingGroup(
    "The job",
    (
        Setting(
            "app_name",
            "Label `app`, and part of every dedup key: "
            "[each job needs its own](delivery.md#two-drivers-of-one-app-name). "
            "Default: `spark.app.name`.",
            '"orders"',
        ),
        Setting("expected_queries", "Queries that must run.", '["bronze", "silver"]'),
        Setting(
            "queries",
            "Other limits by name pattern: see [By query](#by-query).",
            '{"nightly*" = {stall_floor_seconds = 3600}}',
        ),
    ),
)

ALERTS = SettingGroup(
    "Alerts",
    (
        Setting(
            "resolve_after_seconds",
            "An alert resolves after the query has been healthy for this long, with two commits "
            "or idle.",
            "30",
        ),
        Setting("repeat_interval_seconds", "Reminder while an alert keeps firing.", "14400"),
        Setting(
            "group_min_queries",
            "This many queries that fail together for one cause are grouped into one page.",
            "3",
        ),
        Setting("group_window_seconds", "The time within which they must fail.", "10"),
        Setting(
            "silences",
            "Suppress matching alerts for a time: [alerts.md](alerts.md#silences).",
            '[{queries = "bronze", until = "2026-12-01T06:00:00Z"}]',
        ),
        Setting(
            "silence_file",
            "Where `querypulse silence` writes, and the sidecar reads.",
            '"/shared/silences.json"',
        ),
        Setting(
            "spool_dir",
            "Where undelivered and open alerts, and the failures that "
            "`StreamingQueryFlapping` counts, outlive the driver.",
            '"/var/lib/querypulse"',
        ),
        Setting(
            "external_url",
            "Where people reach this driver's status page: alerts link to it, and to the "
            "runbooks that the driver serves.",
            '"https://spark.example.com/orders"',
        ),
        Setting(
            "dashboard_url",
            "A dashboard that alerts link to; `{app}` and `{query}` are filled in.",
            '"https://grafana.example.com/d/querypulse-query?var-query={query}"',
        ),
        Setting(
            "runbook_base_url",
            "Where `runbook_url` points. Default: the runbooks in the repository; with "
            "`external_url` those that the driver serves.",
            '"https://wiki.example.com/runbooks"',
        ),
        Setting(
            "redact_patterns",
            "Regular expressions of further texts that must not leave the driver: "
            "[redaction.md](redaction.md).",
            r"""['customer-\d+']""",
        ),
    ),
)

STALLS = SettingGroup(
    "Stalls and slow batches",
    (
        Setting(
            "stall_floor_seconds",
            "The smallest window W. `W = max(floor, max(trigger interval, longest recent batch) x "
            "(tolerance + 2))`; for a batch in flight without the trigger interval.",
            "60",
        ),
        Setting("stall_tolerance", "How many more batch times W allows.", "1"),
        Setting(
            "stall_critical_factor",
            "A stall with an ordinary cause (a task runs, no executor, no free slot) is a warning "
            "at W and critical at this many W, after 15 minutes at the latest.",
            "3",
        ),
        Setting(
            "slow_critical_factor",
            "A running batch whose tasks still finish is critical after this many W ...",
            "10",
        ),
        Setting("slow_critical_seconds", "... and after this long at the latest.", "1800"),
        Setting(
            "start_grace_seconds",
            "How long a started or expected query may show no activity: `StreamingQueryMissing`.",
            "120",
        ),
        Setting(
            "gone_grace_seconds",
            "How long a query that ended may take to come back: `StreamingQueryStopped`.",
            "60",
        ),
        Setting(
            "failed_grace_seconds",
            "How long a query that failed may take to recover before an alert fires.",
            "0",
        ),
        Setting(
            "restart_budget",
            "This many failures within `restart_window_seconds`: `StreamingQueryFlapping`.",
            "3",
        ),
        Setting("restart_window_seconds", "The window of `restart_budget`.", "600"),
    ),
)

DATA = SettingGroup(
    "Lag, input and data loss",
    (
        Setting("lag_allowed_offsets", "How far behind a query may be, in offsets.", "1000"),
        Setting(
            "lag_allowed_seconds",
            "How long the first unread record may wait; `StreamingQueryLagging` is critical at "
            "three times that.",
            "300",
        ),
        Setting(
            "trend_window_seconds",
            "How long lag must have risen, or a watermark not advanced.",
            "300",
        ),
        Setting(
            "expected_input_seconds",
            "A query that reads no rows for this long is reported (`StreamingInputMissing`). "
            "Without it, idle is healthy.",
            "900",
        ),
        Setting(
            "data_loss_warning_ratio",
            "`StreamingDataLossRisk`: the share of a source's retention that unread data may use.",
            "0.7",
        ),
        Setting("data_loss_critical_ratio", "The share from which it is critical.", "0.9"),
        Setting(
            "source_interval_seconds",
            "How often brokers are asked for the end offsets of a query's sources; `0` is never.",
            "15",
        ),
        Setting(
            "lag_by_partition",
            "Exports the lag of each partition too: one series per partition.",
            "true",
        ),
        Setting(
            "probe_interval_seconds",
            "How often Spark is polled while a batch takes long; at most once a second otherwise.",
            "0.5",
        ),
    ),
)
