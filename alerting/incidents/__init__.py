"""Alerts and incidents: when they open, what people are notified of, when they end."""
