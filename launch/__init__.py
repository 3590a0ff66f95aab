"""Attaching to a job that is not changed: by its start command, or in a whole environment."""
