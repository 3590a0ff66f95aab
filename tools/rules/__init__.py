"""Writes Prometheus' rules, as a rule file and as a PrometheusRule manifest, from one source."""
