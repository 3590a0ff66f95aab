"""A Spark older than 3.5 is refused in one sentence, and no other is."""

from __future__ import annotations

import pytest

from querypulse.listener.spark.jvm import UnsupportedSparkError, is_before, require_supported


@pytest.mark.parametrize("version", ["3.4.1", "3.4.1-amzn-2", "2.4.8", "3.0.0.dev0"])
def test_older_spark_is_refused_in_one_sentence(version):
    with pytest.raises(UnsupportedSparkError) as refused:
        require_supported(version)

    assert str(refused.value) == f"Spark {version} is too old: querypulse needs 3.5 or newer"


@pytest.mark.parametrize(
    "version",
    ["3.5.0", "3.5.9-amzn-0", "4.0.0-preview1", "4.3.0", "10.1", "next", "", "15.4.x-scala2.12"],
)
def test_supported_or_unknown_version_is_accepted(version):
    require_supported(version)


@pytest.mark.parametrize("version", ["3.5.9", "3.5.0-amzn-1", "v3.5.1", "3"])
def test_version_before_4_is_known(version):
    assert is_before(4, version)


@pytest.mark.parametrize("version", ["4.0.0", "v4.0.0", "10.1", "dbr-16.4", "dbr-3", "next", ""])
def test_later_or_unknown_version_is_not_before_4(version):
    assert not is_before(4, version)
