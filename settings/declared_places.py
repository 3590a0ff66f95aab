"""The places that the settings declare: what queries read and write where Spark does not show it.

Forms: a URI or absolute path, as such or after ``path:``, ``delta:`` or ``parquet:``
(``delta:/lake/bronze``, ``s3://lake/bronze``); ``kafka:TOPIC`` or ``kafka://BROKERS/TOPIC``;
``table:CATALOG.DB.TABLE``, ``iceberg:...``. Without a file system or brokers a place matches any.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..listener.flow import Declared
from ..listener.places import TABLE, TOPIC, Place, brokers_of, path_place
from .settings import QuerySettings, SettingsError

_PATHS = ("path:", "delta:", "parquet:")
_TABLES = ("table:", "iceberg:")
_KAFKA = "kafka:"
_FILE_SYSTEMS = frozenset(
    {
        *("file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "o3fs", "maprfs", "alluxio"),
        *("s3", "gs", "abfss", "wasb", "wasbs", "adl", "dbfs", "oss", "obs", "cosn", "lakefs"),
    }
)
"""Hadoop's names for them, as ``Place.owners`` has them; of others, declare the path alone."""
ALLOWED = (
    "'delta:/lake/bronze', 's3://lake/bronze', 'kafka:orders', 'kafka://broker:9092/orders' or "
    "'iceberg:catalog.db.orders'"
)


def declared(queries: Mapping[str, QuerySettings]) -> tuple[Declared, ...]:
    """The declarations, in the order of the settings.

    Raises:
        SettingsError: a place, or the pattern of its queries, could never match.

    """
    found = []
    for pattern, own in queries.items():
        reads = tuple(_place(text, pattern, "reads") for text in own.reads or ())
        writes = tuple(_place(text, pattern, "writes") for text in own.writes or ())
        if (reads or writes) and not pattern.strip():
            raise SettingsError("setting 'queries': an empty name pattern matches no query")
        if reads or writes:
            found.append(Declared(pattern, reads, writes))
    return tuple(found)


def _place(text: str, pattern: str, side: str) -> Place:
    place = _parsed(text.strip())
    if place is None:
        raise SettingsError(
            f"setting 'queries', {side!r} of {pattern!r}: {text!r} could never match; write "
            f"{ALLOWED}"
        )
    return place


def _parsed(text: str) -> Place | None:
    if text.startswith(_KAFKA):
        return _topic(text.removeprefix(_KAFKA))
    for prefix in _TABLES:
        if text.startswith(prefix):
            name = text.removeprefix(prefix)
            return Place(TABLE, name) if all(name.split(".")) and "." in name else None
    for prefix in _PATHS:
        text = text.removeprefix(prefix)
    place = path_place(text)
    known = place is None or all(_scheme(one) in _FILE_SYSTEMS for one in place.owners)
    return place if known else None


def _scheme(owner: str) -> str:
    return owner.partition("://")[0]


def _topic(text: str) -> Place | None:
    brokers: tuple[str, ...] = ()
    if text.startswith("//"):
        servers, _, text = text.removeprefix("//").partition("/")
        brokers = brokers_of(servers)
        if not brokers:
            return None
    return Place(TOPIC, text, brokers) if text and "/" not in text else None
