"""Makes the demo stack's Alertmanager configuration, whose receivers notify nobody."""
