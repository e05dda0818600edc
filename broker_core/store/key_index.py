"""The key index: positions in the log of the messages of a key. The log can rebuild its files.

A segment of the log has one index file of the same name, deleted with it. A file is a sequence of
*runs*, each written at once: a head, then its entries, ascending, of 8 bytes: the hash of a key and
the start of its message in the segment, 32 bits each. A run covers a range of the log, and the next
one continues after it; messages after the last run are indexed again at the next start.

head    8 bytes magic, int64 first and last byte of the log covered (the last not), int64 store
        times of the first and the last message, int32 entries, int32 CRC of all the rest

1. A file is on disk before the next one begins, so a start only verifies the last one. A run of
   an older file is verified when it is searched first.
2. A start removes data after the end of the log, or after an incomplete run.
3. A hash is a guess: the caller must check the message itself.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from broker_core.private_files import make_folder
from broker_core.store.files import OpenFiles, write_at

_HEAD = struct.Struct(">8sqqqqiI")
_MAGIC = b"OLKEYS 1"
_ENTRY_BYTES = 8
#: Entries of a run; kept in memory until it is complete.
RUN_ENTRIES = 16_384
#: Entries searched around the expected position of a hash, if hashes are evenly distributed.
WINDOW = 256


class Run(NamedTuple):
    """One run: the file and position of its entries, and the range that it covers."""

    segment: int
    at: int
    entries: int
    start: int
    end: int
    first_ms: int
    last_ms: int


class RunDamaged(Exception):
    """A run does not match its sum; ``segment`` is the file from which on to index again."""

    def __init__(self, segment: int) -> None:
        super().__init__(f"the key index of the log from byte {segment} on is damaged")
        self.segment = segment


class IndexRestarted(Exception):
    """Runs that are being searched were deleted by ``restart_at``."""


class KeyIndex:
    """The index in *folder*. One thread only. Offsets are those of the log, in bytes."""

    def __init__(self, folder: Path, *, segments: Sequence[int], end: int) -> None:
        """Open the index of a log with these *segments* (ascending starts) that ends at *end*.

        Blocks: reads the heads of all runs and the whole last file. Raises OSError.
        """
        self._folder = folder
        self._files = OpenFiles(limit=32)
        self._runs: list[Run] = []
        self._entries = array("Q")  # of the current run
        self._first_ms = self._last_ms = 0
        self._segment = segments[0] if segments else end
        self._segment_ended = False
        self._finished: Path | None = None
        self._verified: set[tuple[int, int]] = set()  # file and position of runs
        self._restarts = 0
        make_folder(folder)
        self._open(segments, end)
        #: The first byte of the log that is not indexed.
        self.position = self._runs[-1].end if self._runs else self._segment

    def add(self, hashes: Collection[int], place: int, *, store_ms: int) -> None:
        """Enter the message at *place*, after all others; ``advance`` completes it."""
        if not self._entries:
            self._first_ms = store_ms
        self._last_ms = store_ms
        in_segment = place - self._segment
        for each in hashes:
            self._entries.append(each << 32 | in_segment)

    def advance(self, position: int, *, ends_segment: bool = False) -> None:
        """Note that all before *position*, where the next message is, has been entered.

        *ends_segment*: the next message is in another segment. ``write_due`` must be called before
        the next ``add``.
        """
        self.position = position
        self._segment_ended = ends_segment

    def write_due(self) -> None:
        """Write a run if one is complete. Raise OSError; may then be called again."""
        if not self._segment_ended and len(self._entries) < RUN_ENTRIES:
            return
        start = self._segment
        at = _HEAD.size
        if self._runs and self._runs[-1].segment == self._segment:
            start = self._runs[-1].end
            at += self._runs[-1].at + self._runs[-1].entries * _ENTRY_BYTES
        run = Run(
            self._segment, at, len(self._entries), start, self.position, self._first_ms,
            self._last_ms,
        )  # fmt: skip
        self._write(run, _packed(self._entries))
        self._runs.append(run)
        self._entries = array("Q")
        if self._segment_ended:
            self._finished = self._path(self._segment)
            self._segment, self._segment_ended = self.position, False

    def take_finished(self) -> Path | None:
        """Return the file that must be on disk before more is written, or None."""
        finished, self._finished = self._finished, None
        return finished

    def candidates(self, wanted: int, *, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yield positions of messages that may have the key of hash *wanted*, newest first.

        Runs without messages from *begin_ms* to *end_ms* are skipped. Yields None when the search
        has taken a while; others may change the index then. Raises RunDamaged: ``restart_at``,
        and IndexRestarted if another search has done that.
        """
        segment, runs, restarts = self._segment, self._runs[:], self._restarts
        here = sorted(each for each in self._entries if each >> 32 == wanted)
        for each in reversed(here):
            yield segment + (each & 0xFFFFFFFF)
        for number, run in enumerate(reversed(runs), 1):
            if self._restarts != restarts:
                raise IndexRestarted
            try:
                self._verify(run)
            except FileNotFoundError:  # deleted by retention
                return
            if run.entries and run.first_ms <= end_ms and run.last_ms >= begin_ms:
                try:
                    found = self._find(run, wanted)
                except FileNotFoundError:  # deleted by retention
                    return
                for each in reversed(found):
                    yield run.segment + (each & 0xFFFFFFFF)
            if number % 64 == 0:
                yield None

    def restart_at(self, segment: int) -> None:
        """Delete the files from *segment* on, and index from there again. Raise OSError."""
        self._restarts += 1
        self._entries = array("Q")
        self._finished = None
        for each in sorted({run.segment for run in self._runs if run.segment >= segment}):
            self._files.forget(self._path(each))
            self._path(each).unlink(missing_ok=True)
        self._runs = [run for run in self._runs if run.segment < segment]
        self._verified = {each for each in self._verified if each[0] < segment}
        self._segment = self.position = segment
        self._segment_ended = False

    def _verify(self, run: Run) -> None:
        """Raise RunDamaged unless *run* matches its sum; read once."""
        name = (run.segment, run.at)
        if name in self._verified:
            return
        descriptor = self._files.descriptor(self._path(run.segment))
        size = _HEAD.size + run.entries * _ENTRY_BYTES
        data = os.pread(descriptor, size, run.at - _HEAD.size)
        if data[: _HEAD.size] != _head(run, data[_HEAD.size :]):
            raise RunDamaged(run.segment)
        self._verified.add(name)

    def delete_before(self, first: int) -> None:
        """Delete the files of segments before the one that starts at *first*. Raise OSError."""
        while self._runs and (segment := self._runs[0].segment) < first:
            path = self._path(segment)
            self._files.forget(path)
            path.unlink(missing_ok=True)
            self._runs = [run for run in self._runs if run.segment != segment]
        if self.position < first:  # it was deleted before it was read
            self._entries = array("Q")
            self._segment = self.position = first
            self._segment_ended = False

    def close(self) -> None:
        """Close the files; keys not yet in a run are indexed again at the next start."""
        self._files.close()

    # ---- files ----------------------------------------------------------------------------------

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:020d}"

    def _open(self, segments: Sequence[int], end: int) -> None:
        """Keep the files and runs that fit the log; delete the rest."""
        files = {int(path.name) for path in self._folder.iterdir() if path.name.isdigit()}
        for at, segment in enumerate(segments):
            if segment not in files:
                break
            following = segments[at + 1] if at + 1 < len(segments) else None
            files.remove(segment)
            runs = self._read_file(segment, end, check=following not in files)
            self._runs += runs
            if following is None or not runs or runs[-1].end != following:
                break
            self._segment = following
        for segment in files:
            self._path(segment).unlink()

    def _read_file(self, segment: int, end: int, *, check: bool) -> list[Run]:
        path = self._path(segment)
        size = path.stat().st_size
        runs: list[Run] = []
        at, start = 0, segment
        with path.open("rb") as file:
            while (run := _read_run(file, segment, at, check=check)) is not None:
                if run.start != start or not start < run.end <= end:
                    break
                runs.append(run)
                start, at = run.end, run.at + run.entries * _ENTRY_BYTES
        if at < size:
            os.truncate(path, at)
        self._segment = segment
        return runs

    def _write(self, run: Run, entries: bytes) -> None:
        path = self._path(run.segment)
        descriptor = self._files.descriptor(path, create=True)
        at = run.at - _HEAD.size
        try:
            write_at(descriptor, _head(run, entries) + entries, at)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, at)
            raise

    def _find(self, run: Run, wanted: int) -> array[int]:
        """Return the entries of hash *wanted* in *run*."""
        low, high = wanted << 32, (wanted + 1) << 32
        guess = wanted * run.entries >> 32
        start, stop = max(0, guess - WINDOW), min(run.entries, guess + WINDOW)
        descriptor = self._files.descriptor(self._path(run.segment))
        while True:
            entries = _unpacked(
                os.pread(descriptor, (stop - start) * _ENTRY_BYTES, run.at + start * _ENTRY_BYTES)
            )
            around = stop - start
            if start > 0 and (not entries or entries[0] >= low):
                start = max(0, start - around)
            elif stop < run.entries and len(entries) == around and entries[-1] < high:
                stop = min(run.entries, stop + around)
            else:
                return entries[bisect_left(entries, low) : bisect_left(entries, high)]


def _head(run: Run, entries: bytes) -> bytes:
    fields = (_MAGIC, run.start, run.end, run.first_ms, run.last_ms, run.entries)
    return _HEAD.pack(*fields, _sum(fields, entries))


def _sum(fields: Sequence[object], entries: bytes) -> int:
    return zlib.crc32(entries, zlib.crc32(_HEAD.pack(*fields, 0)))


def _read_run(file: BinaryIO, segment: int, at: int, *, check: bool) -> Run | None:
    """Return the run with its head at *at*, or None if incomplete; *check* verifies its sum."""
    file.seek(at)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    *fields, expected = _HEAD.unpack(head)
    magic, start, end, first_ms, last_ms, count = fields
    if magic != _MAGIC or count < 0:
        return None
    size = count * _ENTRY_BYTES
    if at + _HEAD.size + size > os.fstat(file.fileno()).st_size:
        return None
    if check and _sum(fields, file.read(size)) != expected:
        return None
    return Run(segment, at + _HEAD.size, count, start, end, first_ms, last_ms)


def damaged_runs(path: Path) -> Iterator[tuple[int, str]]:
    """Yield position and reason of the damage in one file of an index; a broker rebuilds it."""
    size = path.stat().st_size
    at = 0
    with path.open("rb") as file:
        while at < size:
            run = _read_run(file, int(path.name), at, check=True)
            if run is None:
                yield at, "no complete run of keys starts there, or its checksum is wrong"
                return
            at = run.at + run.entries * _ENTRY_BYTES


def _packed(entries: array[int]) -> bytes:
    ascending = array("Q", sorted(entries))
    if sys.byteorder == "little":
        ascending.byteswap()
    return ascending.tobytes()


def _unpacked(data: bytes) -> array[int]:
    entries = array("Q")
    entries.frombytes(data[: len(data) - len(data) % _ENTRY_BYTES])
    if sys.byteorder == "little":
        entries.byteswap()
    return entries
