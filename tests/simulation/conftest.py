"""Fixtures of the simulator."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def no_log():
    """Without this fixture, thousands of outages are logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
