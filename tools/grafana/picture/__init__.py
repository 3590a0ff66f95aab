"""Draws a dashboard's panels from its JSON and the answers of a real Prometheus, without Grafana.

It knows just the options that our own panels use.
"""
