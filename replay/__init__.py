"""Replays recorded events: evaluates them as if live, and prints the alerts that would fire."""
