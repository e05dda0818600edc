"""Checksums of a consume queue's entries, so that a changed tag or due time is noticed.

Beside each file of entries there is one of *sums*, with 8 bytes for each block of 1024 entries:
their number so far, and their CRC-32. A block is compared with its sum when it is read first.

New sums are not synced: after a power failure one may be missing or cover fewer entries. Only a sum
of entries that were removed or replaced would be wrong, so that change is synced with the entries.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct

from broker_core.store.files import OpenFiles, write_at

BLOCK_ENTRIES = 1024
_SUM = Struct(">II")


def sums_path(path: Path) -> Path:
    """Return the file with the sums of the file of entries *path*."""
    return path.with_name(path.name + ".sums")


class EntrySums:
    """The sums of one file of entries of *entry_bytes* each. One thread only."""

    def __init__(
        self,
        path: Path,
        *,
        files: OpenFiles,
        entry_bytes: int,
        read: Callable[[int, int], bytes],
    ) -> None:
        """Keep the sums of the file *path*; *read* returns bytes of it from a position on."""
        self.path = sums_path(path)
        self._files = files
        self._entry_bytes = entry_bytes
        self._block_bytes = BLOCK_ENTRIES * entry_bytes
        self._read = read
        self._end, self._crc = -1, 0  # of the last block written
        self._verified: set[int] = set()

    def wrote(self, position: int, data: bytes) -> None:
        """Note that *data* was written at *position*, the end of the entries."""
        first = position // self._block_bytes
        begin = first * self._block_bytes
        if position == begin:
            crc = 0
        elif position == self._end:
            crc = self._crc
        else:
            crc = zlib.crc32(self._read(begin, position - begin))
        sums = bytearray()
        at, end = position, position + len(data)
        while at < end:
            stop = min(end, at - at % self._block_bytes + self._block_bytes)
            if at % self._block_bytes == 0:
                crc = 0
            crc = zlib.crc32(data[at - position : stop - position], crc)
            count = (stop - 1) % self._block_bytes // self._entry_bytes + 1
            sums += _SUM.pack(count, crc)
            at = stop
        self._end, self._crc = end, crc
        self._write(first, bytes(sums))

    def changed(self, position: int) -> None:
        """Note that the entry at *position* was replaced."""
        block = position // self._block_bytes
        if (known := self._sum(block)) is not None:
            data = self._read(block * self._block_bytes, known[0] * self._entry_bytes)
            self._write(block, _SUM.pack(len(data) // self._entry_bytes, zlib.crc32(data)))
        self._end = -1

    def exceed(self, end: int) -> bool:
        """Return whether there are sums of entries behind *end*, the end of the file."""
        block, rest = divmod(end, self._block_bytes)
        with suppress(FileNotFoundError):
            if self.path.stat().st_size > (block + bool(rest)) * _SUM.size:
                return True
        known = self._sum(block) if rest else None
        return known is not None and known[0] * self._entry_bytes > rest

    def cut(self, end: int) -> None:
        """Note that the file ends at *end* now."""
        block, rest = divmod(end, self._block_bytes)
        self._end = -1
        self._verified = {each for each in self._verified if each < block}
        with suppress(OSError):
            if self.path.exists():
                self._files.forget(self.path)
                os.truncate(self.path, block * _SUM.size)
            if rest:
                data = self._read(block * self._block_bytes, rest)
                self._write(block, _SUM.pack(rest // self._entry_bytes, zlib.crc32(data)))

    def wrong_entries(self, position: int, size: int) -> list[tuple[int, int]]:
        """Return position and number of entries of blocks that do not match their sums.

        Of the blocks with the *size* bytes from *position* on; each block is compared once.
        """
        first, last = position // self._block_bytes, (position + size - 1) // self._block_bytes
        wrong: list[tuple[int, int]] = []
        for block in range(first, last + 1):
            if block in self._verified:
                continue
            self._verified.add(block)
            known = self._sum(block)
            if known is None:
                continue
            data = self._read(block * self._block_bytes, known[0] * self._entry_bytes)
            is_whole = len(data) == known[0] * self._entry_bytes
            if is_whole and zlib.crc32(data) != known[1]:
                wrong.append((block * self._block_bytes, known[0]))
        return wrong

    def compare_again(self) -> None:
        """Compare all blocks at the next reads."""
        self._verified.clear()

    def delete(self) -> None:
        """Delete the sums with the entries. Raise OSError."""
        self._files.forget(self.path)
        self.path.unlink(missing_ok=True)
        self._end = -1
        self._verified.clear()

    def _sum(self, block: int) -> tuple[int, int] | None:
        if not self.path.exists():
            return None
        raw = os.pread(self._files.descriptor(self.path), _SUM.size, block * _SUM.size)
        if len(raw) < _SUM.size:
            return None
        count, crc = _SUM.unpack(raw)
        return (count, crc) if 0 < count <= BLOCK_ENTRIES else None

    def _write(self, block: int, sums: bytes) -> None:
        with suppress(OSError):  # on a full disk; older sums cover fewer entries
            descriptor = self._files.descriptor(self.path, create=True)
            write_at(descriptor, sums, block * _SUM.size)
