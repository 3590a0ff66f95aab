"""Which querypulse this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("querypulse")
except PackageNotFoundError:
    # Shipped without its metadata, as by spark-submit --py-files.
    VERSION = "unknown"
