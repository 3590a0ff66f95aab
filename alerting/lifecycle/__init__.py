"""The lifecycle of alerts: pending, firing, recovering, ended; alone or in groups. Pure."""
