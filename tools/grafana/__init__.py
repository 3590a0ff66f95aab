"""Builds the Grafana dashboards of ``dashboards/grafana``: ``python -m tools.grafana``."""
