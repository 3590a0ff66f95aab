"""Opens a log for reading, decompressed by the codec in its name.

Spark names the codec in the extension (``EventLogFileWriter.codecName``); ``.zst`` and ``.gz``
are for recordings that users compress themselves.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..core.installed import NotInstalledError
from .blocks import BlockFile, lz4_blocks, snappy_blocks
from .errors import ReplayError

AFTER_THE_CODEC = (".inprogress", ".compact")
UNPACKED_BYTES = 256 * 1024
"""The size of one decompressed piece: Python's usual 8 KB takes twice as long."""


class Stream(NamedTuple):
    """A file's decompressed content, and the errors that its codec raises for damaged data."""

    file: BinaryIO
    damage: tuple[type[Exception], ...]


def decompressed(raw: BinaryIO, path: Path) -> Stream:
    """The decompressed content of ``raw``, the opened file ``path``, read piece by piece.

    Raises:
        NotInstalledError: its codec needs a package that is not installed.
        ReplayError: no maintained package reads its codec.

    """
    codec = codec_of(path)
    if codec == "lzf":
        raise ReplayError(
            f"{path}: the codec lzf is not supported; set "
            "spark.eventLog.compression.codec=zstd (or lz4, snappy), or decompress the file"
        )
    try:
        return _STREAMS[codec](raw)
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            f"reading {path} needs the package {error.name}: pip install {error.name}"
        ) from None


def codec_of(path: Path) -> str:
    """The codec in a log's name, such as ``zstd``; empty for a plain file."""
    name = path.name
    for suffix in AFTER_THE_CODEC:
        name = name.removesuffix(suffix)
    codec = Path(name).suffix.removeprefix(".")
    return codec if codec in (*_STREAMS, "lzf") else ""


def _plain(raw: BinaryIO) -> Stream:
    return Stream(raw, ())


def _zstd(raw: BinaryIO) -> Stream:
    import zstandard

    reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return Stream(io.BufferedReader(reader, UNPACKED_BYTES), (zstandard.ZstdError,))


def _lz4(raw: BinaryIO) -> Stream:
    import cramjam

    blocks = lz4_blocks(raw, cramjam.lz4.decompress_block)
    return Stream(
        io.BufferedReader(BlockFile(blocks), UNPACKED_BYTES),
        (cramjam.DecompressionError, ValueError),
    )


def _snappy(raw: BinaryIO) -> Stream:
    import cramjam

    blocks = snappy_blocks(raw, cramjam.snappy.decompress_raw)
    return Stream(
        io.BufferedReader(BlockFile(blocks), UNPACKED_BYTES),
        (cramjam.DecompressionError, ValueError),
    )


def _gzip(raw: BinaryIO) -> Stream:
    return Stream(
        io.BufferedReader(gzip.GzipFile(fileobj=raw), UNPACKED_BYTES),
        (zlib.error, gzip.BadGzipFile),
    )


_STREAMS: dict[str, Callable[[BinaryIO], Stream]] = {
    "": _plain,
    "zstd": _zstd,
    "zst": _zstd,
    "lz4": _lz4,
    "snappy": _snappy,
    "gz": _gzip,
}
