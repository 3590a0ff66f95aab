"""Serves the published state as Prometheus metrics, as status and over HTTP."""
