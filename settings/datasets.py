"""The datasets that the settings declare: what queries read and write where Spark does not show it.

Forms: a URI or absolute path, as such or after ``path:``, ``delta:`` or ``parquet:``
(``delta:/lake/bronze``, ``s3://lake/bronze``); ``kafka:TOPIC`` or ``kafka://BROKERS/TOPIC``;
``table:CATALOG.DB.TABLE``, ``iceberg:...``. Without a file system or brokers a dataset matches any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..listener.state.flow import TABLE, TOPIC, Dataset, Declared, brokers_of, path_dataset
from .settings import QuerySettings

_PATHS = ("path:", "delta:", "parquet:")
_TABLES = ("table:", "iceberg:")
_KAFKA = "kafka:"
_FILE_SYSTEMS = frozenset(
    {
        *("file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "o3fs", "maprfs", "alluxio"),
        *("s3", "gs", "abfss", "wasb", "wasbs", "adl", "dbfs", "oss", "obs", "cosn", "lakefs"),
    }
)
"""Hadoop's names for them, as ``Dataset.owners`` has them; of others, declare the path alone."""
ALLOWED = (
    "'delta:/lake/bronze', 's3://lake/bronze', 'kafka:orders', 'kafka://broker:9092/orders' or "
    "'iceberg:catalog.db.orders'"
)


def declared_datasets(queries: Mapping[str, QuerySettings]) -> tuple[Declared, ...]:
    """The datasets of each name pattern of the setting ``queries`` that declares some.

    Raises:
        ValueError: a text could never match a dataset, or a pattern no query.

    """
    declarations = []
    for pattern, own in queries.items():
        reads = tuple(_datasets(pattern, "reads", own.reads or ()))
        writes = tuple(_datasets(pattern, "writes", own.writes or ()))
        if reads or writes:
            declarations.append(Declared(pattern, reads, writes))
    return tuple(declarations)


def _datasets(pattern: str, side: str, texts: Sequence[str]) -> Iterator[Dataset]:
    for text in texts:
        if not pattern.strip():
            raise ValueError("setting 'queries': an empty name pattern matches no query")
        if (dataset := _parsed(text.strip())) is None:
            raise ValueError(
                f"setting 'queries', {side!r} of {pattern!r}: {text!r} could never match; write "
                f"{ALLOWED}"
            )
        yield dataset


def _parsed(text: str) -> Dataset | None:
    if text.startswith(_KAFKA):
        return _topic(text.removeprefix(_KAFKA))
    for prefix in _TABLES:
        if text.startswith(prefix):
            name = text.removeprefix(prefix)
            return Dataset(TABLE, name) if all(name.split(".")) and "." in name else None
    for prefix in _PATHS:
        text = text.removeprefix(prefix)
    dataset = path_dataset(text)
    schemes = set() if dataset is None else {owner.partition("://")[0] for owner in dataset.owners}
    return dataset if schemes <= _FILE_SYSTEMS else None


def _topic(text: str) -> Dataset | None:
    brokers: tuple[str, ...] = ()
    if text.startswith("//"):
        servers, _, text = text.removeprefix("//").partition("/")
        brokers = brokers_of(servers)
        if not brokers:
            return None
    return Dataset(TOPIC, text, brokers) if text and "/" not in text else None
