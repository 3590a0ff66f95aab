"""The framing that Java's lz4 and snappy streams put around their blocks.

Spark uses ``net.jpountz.lz4.LZ4BlockOutputStream`` and ``org.xerial.snappy.SnappyOutputStream``;
neither is the frame format of the command-line tools. Both are read block by block, so that
memory stays constant. A stream that a killed driver cut off ends without an error.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

# Magic, token (method and level), compressed and original length, checksum.
_LZ4_HEADER = struct.Struct("<8sBiii")
_LZ4_MAGIC = b"LZ4Block"
_LZ4_STORED = 0x10
_LZ4_METHOD = 0xF0
# Magic, version, compatible version; then each block with its length before it.
_SNAPPY_HEADER = struct.Struct(">8sii")
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_LENGTH = struct.Struct(">i")
MAX_BLOCK_BYTES = 64 * 1024 * 1024
"""Larger than either library ever writes (lz4-java's own limit is 32 MiB)."""


class BlockFile(io.RawIOBase):
    """A readable file over an iterator of blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the current block; 0 at the end."""
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = memoryview(block)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def lz4_blocks(file: BinaryIO, decompress: Callable[..., Any]) -> Iterator[bytes]:
    """The blocks of an ``LZ4BlockOutputStream``; after an empty block another stream may follow.

    ``decompress(block, output_len=...)`` reads one raw lz4 block.

    Raises:
        ValueError: the file has another format.

    """
    while len(header := file.read(_LZ4_HEADER.size)) == _LZ4_HEADER.size:
        magic, token, size, original_size, _checksum = _LZ4_HEADER.unpack(header)
        if magic != _LZ4_MAGIC:
            raise ValueError("not the blocks that Spark's lz4 codec writes")
        block = _exactly(file, size)
        if block is None:
            return
        if token & _LZ4_METHOD == _LZ4_STORED:
            yield block
        elif original_size:
            yield bytes(decompress(block, output_len=_sane(original_size)))


def snappy_blocks(file: BinaryIO, decompress: Callable[[bytes], Any]) -> Iterator[bytes]:
    """The blocks of one or more ``SnappyOutputStream``.

    ``decompress(block)`` reads one raw snappy block.

    Raises:
        ValueError: the file has another format.

    """
    head = file.read(_SNAPPY_HEADER.size)
    if not _SNAPPY_MAGIC.startswith(head[: len(_SNAPPY_MAGIC)]):
        raise ValueError("not the blocks that Spark's snappy codec writes")
    while len(head := file.read(_SNAPPY_LENGTH.size)) == _SNAPPY_LENGTH.size:
        if _SNAPPY_MAGIC.startswith(head):
            file.read(_SNAPPY_HEADER.size - len(head))
            continue
        block = _exactly(file, _SNAPPY_LENGTH.unpack(head)[0])
        if block is None:
            return
        yield bytes(decompress(block))


def _exactly(file: BinaryIO, size: int) -> bytes | None:
    """The next ``size`` bytes; None if the file ends before that."""
    block = file.read(_sane(size))
    return block if len(block) == size else None


def _sane(size: int) -> int:
    if not 0 <= size <= MAX_BLOCK_BYTES:
        raise ValueError(f"damaged: a block of {size} bytes")
    return size
