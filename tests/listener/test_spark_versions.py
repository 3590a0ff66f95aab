"""A Spark older than 3.5 is refused in one sentence, and no other is."""

from __future__ import annotations

import pytest

from querypulse.listener.spark.jvm import UnsupportedSparkError, is_before, require_supported


@pytest.mark.parametrize("version", ["3.4.1", "3.4.1-amzn-2", "2.4.8", "3.0.0.dev0"])
def test_older_spark_is_refused_in_one_sentence(version):
    with pytest.raises(UnsupportedSparkError) as refused:
        require_supported(version)

    assert str(refused.value) == f"Spark {version} is too old: querypulse needs 3.5 or newer"


def test_supported_or_unknown_version_is_accepted():
    for version in ("3.5.0", "3.5.9-amzn-0", "4.0.0-preview1", "4.3.0", "10.1", "15.4.x-scala2.12"):
        require_supported(version)
    for unknown in ("next", ""):
        require_supported(unknown)


def test_only_a_known_version_is_before_4():
    older = ["3.5.9", "3.5.0-amzn-1", "v3.5.1", "3"]
    others = ["4.0.0", "v4.0.0", "10.1", "dbr-16.4", "dbr-3", "next", ""]

    assert [version for version in older + others if is_before(4, version)] == older
