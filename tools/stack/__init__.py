"""Makes what the stack to try has of its own: Alertmanager's configuration, with nobody to tell."""
