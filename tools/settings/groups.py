"""What each setting is for, in the order of the page."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """One row: what the record itself does not say; the example is a TOML value."""

    name: str
    meaning: str
    example: str


class Group(NamedTuple):
    """Settings that belong together."""

    title: str
    settings: tuple[Setting, ...]


JOB = Group(
    "The job",
    (
        Setting(
            "app_name",
            "Label `app`, and part of every dedup key: "
            "[one of its own for each job](delivery.md#two-drivers-of-one-app-name). "
            "Default: `spark.app.name`.",
            '"orders"',
        ),
        Setting("expected_queries", "Queries that must be there.", '["bronze", "silver"]'),
        Setting(
            "queries",
            "Other limits by name pattern: see [By query](#by-query).",
            '{"nightly*" = {stall_floor_seconds = 3600}}',
        ),
    ),
)

RECEIVERS = Group(
    "Receivers",
    (
        Setting(
            "webhook_url",
            "Receives Alertmanager's version-4 JSON. `webhook_url_file` reads it from a file.",
            '"https://hooks.example.com/pages"',
        ),
        Setting("webhook_url_file", "The file that holds `webhook_url`.", '"/run/secrets/url"'),
        Setting(
            "webhook_secret_file",
            "Signs each request (Standard Webhooks).",
            '"/run/secrets/webhook"',
        ),
        Setting(
            "pagerduty_routing_key",
            "The integration key of the Events API v2. Refused in the Spark conf.",
            '"R03..."',
        ),
        Setting(
            "pagerduty_routing_key_file",
            "The file that holds `pagerduty_routing_key`.",
            '"/run/secrets/pagerduty"',
        ),
        Setting(
            "pagerduty_url",
            "Another service region. Default: the US region.",
            '"https://events.eu.pagerduty.com/v2/enqueue"',
        ),
        Setting(
            "alertmanager_urls",
            "All members of one Alertmanager cluster.",
            '["http://alertmanager-0:9093"]',
        ),
        Setting(
            "slack_webhook_url",
            "An incoming webhook of a Slack channel. Refused in the Spark conf.",
            '"https://hooks.slack.com/services/..."',
        ),
        Setting(
            "slack_webhook_url_file",
            "The file that holds `slack_webhook_url`.",
            '"/run/secrets/slack"',
        ),
        Setting(
            "heartbeat_url",
            "A dead man's switch: requested again and again while querypulse evaluates.",
            '"https://hc.example.com/ping/orders"',
        ),
        Setting(
            "heartbeat_url_file", "The file that holds `heartbeat_url`.", '"/run/secrets/heartbeat"'
        ),
        Setting("heartbeat_interval_seconds", "Time between two heartbeats.", "60"),
        Setting(
            "receivers",
            "Any number of receivers, each with its own severities, queries and fallback: "
            "[receivers.md](receivers.md).",
            '[{type = "slack", name = "team", url_file = "/run/secrets/slack"}]',
        ),
    ),
)

ALERTS = Group(
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
            "So many queries that fail together for one cause are one page.",
            "3",
        ),
        Setting("group_window_seconds", "Within this time they fail together.", "10"),
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
            "Regular expressions of what must not leave the driver, besides what is known: "
            "[redaction.md](redaction.md).",
            r"""['customer-\d+']""",
        ),
    ),
)

STALLS = Group(
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
            "at W and critical at so many W, after 15 minutes at the latest.",
            "3",
        ),
        Setting(
            "slow_critical_factor",
            "A batch in flight whose tasks still finish is critical after so many W ...",
            "10",
        ),
        Setting("slow_critical_seconds", "... and after this long at the latest.", "1800"),
        Setting(
            "start_grace_seconds",
            "How long a started or expected query may show nothing: `StreamingQueryMissing`.",
            "120",
        ),
        Setting(
            "gone_grace_seconds",
            "How long a query that ended may take to come back: `StreamingQueryStopped`.",
            "60",
        ),
        Setting(
            "failed_grace_seconds",
            "How long a query that failed may take to recover before anybody is notified.",
            "0",
        ),
        Setting(
            "restart_budget",
            "So many failures within `restart_window_seconds`: `StreamingQueryFlapping`.",
            "3",
        ),
        Setting("restart_window_seconds", "The window of `restart_budget`.", "600"),
    ),
)

DATA = Group(
    "Lag, input and data loss",
    (
        Setting("lag_allowed_offsets", "How far behind a query may be.", "1000"),
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
            "How often brokers are asked where a query's data ends; `0` is never.",
            "15",
        ),
        Setting(
            "lag_by_partition",
            "Lag of each partition, too: as many series as there are partitions.",
            "true",
        ),
        Setting("probe_interval_seconds", "How often Spark is polled.", "0.5"),
    ),
)

SERVER = Group(
    "The HTTP server",
    (
        Setting("http_host", "The address to listen on.", '"0.0.0.0"'),
        Setting("http_port", "`0` is any free port, `-1` is no server.", "9719"),
        Setting("http_token_file", "Readers must send this bearer token.", '"/run/secrets/token"'),
        Setting("http_tls_cert_file", "The server's certificate.", '"/run/secrets/tls.crt"'),
        Setting("http_tls_key_file", "Its key.", '"/run/secrets/tls.key"'),
        Setting(
            "http_tls_client_ca_file",
            "Readers must have a certificate of this authority.",
            '"/run/secrets/ca.crt"',
        ),
        Setting(
            "http_allow_anonymous",
            "Lets everybody read. On another `http_host` than loopback, the server stays off "
            "without a token, client certificates, or this.",
            "true",
        ),
    ),
)

NETWORK = Group(
    "The way to receivers",
    (
        Setting("allow_http", "Allows plain http to other hosts.", "true"),
        Setting("proxy_url", "The proxy for all receivers.", '"http://proxy.example.com:3128"'),
        Setting("proxy_from_environment", "Takes the proxy from `HTTPS_PROXY`.", "true"),
        Setting("ca_file", "Trusted authorities besides the system's.", '"/etc/ssl/own-ca.pem"'),
        Setting("client_cert_file", "Our certificate for receivers.", '"/run/secrets/us.crt"'),
        Setting("client_key_file", "Its key.", '"/run/secrets/us.key"'),
    ),
)

GROUPS = (JOB, RECEIVERS, ALERTS, STALLS, DATA, SERVER, NETWORK)
