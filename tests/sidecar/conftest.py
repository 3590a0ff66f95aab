"""Fixtures of the tests of what settings make."""

from __future__ import annotations

import pytest


@pytest.fixture
def file(tmp_path):
    """Write a file; returns its path."""

    def write(content, name="secret"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write
