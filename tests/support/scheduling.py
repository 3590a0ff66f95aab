"""Which tests of a parallel run stay together in one process."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

OBSERVED = ("tests/spark/test_spark_grafana.py", "tests/spark/test_spark_prometheus.py")
"""The files whose tests use the fixture ``observed``, which takes a minute to set up."""


class ByFileAndObserved(LoadFileScheduling):
    """Gives each file to one process, and the files of ``observed`` to the same one.

    pytest-xdist's own ``loadgroup`` writes the group into a private attribute of the test, which
    pytest 9.2 no longer reads: every fixture of a module would be made in each process.
    """

    def _split_scope(self, nodeid: str) -> str:
        """The name of the group of a test (overrides a method of LoadScopeScheduling)."""
        file = super()._split_scope(nodeid)
        return "observed" if file in OBSERVED else file
