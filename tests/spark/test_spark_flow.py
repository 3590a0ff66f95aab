"""Streams that feed streams, on real Spark: files from bronze to gold."""

from __future__ import annotations

from support.queries import until

from querypulse import Settings

SCHEMA = "id int"
EOF_NOTE = None
