"""Foresight: when a query has caught up, what fills up, and why a batch is slow."""
