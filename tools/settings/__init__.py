"""Writes ``docs/settings.md`` from the settings record."""
