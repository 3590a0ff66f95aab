"""Opens a log for reading, compressed as its name says.

Spark names the codec in the extension (``EventLogFileWriter.codecName``); ``.zst`` and ``.gz``
are for recordings that people compress themselves.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..installed import NotInstalledError
from .blocks import BlockFile, lz4_blocks, snappy_blocks
from .errors import ReplayError

AFTER_THE_CODEC = (".inprogress", ".compact")
UNPACKED_BYTES = 256 * 1024
"""So much is unpacked at a time: reading by Python's usual 8 KB takes twice as long."""


class Stream(NamedTuple):
    """What a file holds, and the errors by which its codec says that it is damaged."""

    file: BinaryIO
    damage: tuple[type[Exception], ...]


def decompressed(raw: BinaryIO, path: Path) -> Stream:
    """What ``raw``, the opened file ``path``, holds, to be read piece by piece.

    Raises:
        NotInstalledError: its codec needs a package that is not there.
        ReplayError: its codec is one that no well-kept package reads.

    """
    codec = codec_of(path)
    if codec == "lzf":
        raise ReplayError(
            f"{path}: the codec lzf is not read here; have Spark write "
            "spark.eventLog.compression.codec=zstd (or lz4, snappy), or unpack the file"
        )
    try:
        return _STREAMS[codec](raw)
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            f"to read {path} the package {error.name} is needed: pip install 'querypulse[replay]'"
        ) from None


def codec_of(path: Path) -> str:
    """The codec that a log's name tells, such as ``zstd``; empty for a plain file."""
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
