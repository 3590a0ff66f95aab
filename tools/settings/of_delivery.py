"""The settings of delivery, and of the HTTP server."""

from __future__ import annotations

from tools.settings.setting import Setting, SettingGroup

RECEIVERS = SettingGroup(
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
            "A dead man's switch: requested every `heartbeat_interval_seconds` while querypulse "
            "evaluates.",
            '"https://hc.example.com/ping/orders"',
        ),
        Setting(
            "heartbeat_url_file", "The file that holds `heartbeat_url`.", '"/run/secrets/heartbeat"'
        ),
        Setting("heartbeat_interval_seconds", "Time between two requests.", "60"),
        Setting(
            "receivers",
            "Any number of receivers, each with its own severities, queries and fallback: "
            "[receivers.md](receivers.md).",
            '[{type = "slack", name = "team", url_file = "/run/secrets/slack"}]',
        ),
    ),
)

SERVER = SettingGroup(
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

PUSH = SettingGroup(
    "Pushing metrics",
    (
        Setting(
            "pushgateway_url",
            "A Prometheus Pushgateway that gets all metrics, where nobody can scrape: "
            "[push.md](push.md).",
            '"https://pushgateway.example.com"',
        ),
        Setting(
            "otlp_endpoint",
            "An OpenTelemetry receiver that gets all metrics by OTLP over HTTP; `/v1/metrics` is "
            "appended. Needs the extra `otlp`: [push.md](push.md#opentelemetry).",
            '"https://otel-collector.example.com:4318"',
        ),
        Setting(
            "otlp_headers_file",
            "The file of its headers: `api-key=abc,other=def`.",
            '"/run/secrets/otlp-headers"',
        ),
        Setting("push_interval_seconds", "Time between two pushes.", "15"),
    ),
)

NETWORK = SettingGroup(
    "Connections to receivers",
    (
        Setting("allow_http", "Allows plain http to other hosts.", "true"),
        Setting("proxy_url", "The proxy for all receivers.", '"http://proxy.example.com:3128"'),
        Setting(
            "proxy_from_environment",
            "Uses `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.",
            "true",
        ),
        Setting(
            "ca_file",
            "PEM file of the authorities to trust instead of the public ones.",
            '"/etc/ssl/own-ca.pem"',
        ),
        Setting("client_cert_file", "Our certificate for receivers.", '"/run/secrets/us.crt"'),
        Setting("client_key_file", "Its key.", '"/run/secrets/us.key"'),
    ),
)
