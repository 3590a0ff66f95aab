"""What the tests of several receivers use."""

from __future__ import annotations

import pytest
from support.http_double import HttpDouble, reply
from support.tls import Authority


@pytest.fixture
def double():
    """A server that takes whatever is sent to it, as every kind of receiver expects."""
    with HttpDouble(otherwise=reply(200, body=b"ok")) as double:
        yield double


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))
