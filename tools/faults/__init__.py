"""Writes ``docs/faults.md`` from the results of tests."""
