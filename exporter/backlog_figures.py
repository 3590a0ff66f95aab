"""The unread backlog of a source in files and bytes, as the source reports it after each batch.

Databricks' sources report it (Delta and ``cloudFiles``: ``numFilesOutstanding``,
``numBytesOutstanding``); open-source Delta, Iceberg and file sources do not (seen on Delta 4.4.0,
Iceberg 1.12.0, Spark 4.3.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..listener.events import SourceProgress
from .query_figures import Split
from .row import QueryRow


def _by_source(
    read: Callable[[SourceProgress], float | None],
) -> Callable[[QueryRow], Mapping[str, float]]:
    """A figure of each source by its index."""

    def figures(row: QueryRow) -> Mapping[str, float]:
        sources = row.progress.sources if row.progress is not None else ()
        reported = {str(index): read(source) for index, source in enumerate(sources)}
        return {index: figure for index, figure in reported.items() if figure is not None}

    return figures


BACKLOG = (
    Split(
        "spark_streaming_source_backlog_files",
        "source",
        "Unread files in each source, by its index; only if the source reports them.",
        _by_source(lambda source: source.backlog_files),
    ),
    Split(
        "spark_streaming_source_backlog_bytes",
        "source",
        "Unread bytes in each source, by its index; only if the source reports them.",
        _by_source(lambda source: source.backlog_bytes),
    ),
)
