"""What the tests of several receivers use."""

from __future__ import annotations

import pytest
from support.tls import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))
