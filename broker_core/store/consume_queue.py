"""A consume queue: the position in the commit log of each message of a queue, 20 bytes each.

Entries are (int64 physical offset, int32 size, int64 code), as in RocketMQ; see ``entry_code`` for
the code. The queue offset is the number of the entry, in files of ``entries_per_file``. New entries
stay in memory until ``flush`` or up to 64 KiB: the log can rebuild them. Entries of size 0 replace
messages deleted before the queue was rebuilt, or never completed by an interrupted write; the last
of the deleted ones is marked, to distinguish them from zeros after a power failure.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from broker_core.private_files import create, make_folder
from broker_core.store.entry_sums import EntrySums, sums_path
from broker_core.store.files import OpenFiles, write_at

ENTRY = struct.Struct(">qiq")
ENTRIES_PER_FILE = 300_000
_FLUSH_BYTES = 64 * 1024
_NEAR_ENTRIES = 3  # looked at on one side of the result of a search
#: Place in the last of the entries that stand for deleted messages.
START_MARK = -1
#: Size in the entry of a message that is lost in damage of the log; its place is the damage's.
LOST_BYTES = 1


#: Receives a queue, the first offset and the number of its wrong entries.
OnWrong = Callable[["ConsumeQueue", int, int], bool]


class ConsumeQueue:
    """The entries of one queue, in files under *folder*. One thread only."""

    def __init__(
        self,
        folder: Path,
        *,
        files: OpenFiles,
        entries_per_file: int = ENTRIES_PER_FILE,
        on_wrong: OnWrong | None = None,
    ) -> None:
        """Open the entries in *folder*, if any.

        *on_wrong* is called with the first offset and the number of entries that do not match their
        checksum, and returns whether they will be repaired.
        """
        self.folder = folder
        self._files = files
        self._on_wrong = on_wrong
        self._sums: dict[int, EntrySums] = {}  # by file
        self._file_bytes = entries_per_file * ENTRY.size
        self._last_start, self._last_path = -1, folder
        self._starts = _find_files(folder, self._file_bytes)  # byte positions, ascending
        self._flushed = self._length_on_disk()  # bytes in files, including deleted ones
        self._tail = bytearray()
        #: Files written since the last ``take_written``; a checkpoint syncs them.
        self._written: set[Path] = set()

    @property
    def end_offset(self) -> int:
        """Queue offset of the next entry."""
        return (self._flushed + len(self._tail)) // ENTRY.size

    @property
    def first_offset(self) -> int:
        """Oldest queue offset in the files; the log may have deleted its message already."""
        return (self._starts[0] if self._starts else self._flushed) // ENTRY.size

    @property
    def is_empty(self) -> bool:
        """True if there is no entry, or the last one has no message."""
        return not self.end_offset or self.entry(self.end_offset - 1)[0] == START_MARK

    def append(self, entries: bytes) -> None:
        """Add packed entries."""
        self._tail += entries
        if len(self._tail) >= _FLUSH_BYTES:
            # A full disk soon stops the log; until then the entries are safe in memory.
            with suppress(OSError):
                self.flush()

    def read(self, offset: int, count: int) -> bytes:
        """Return up to *count* packed entries from *offset* on, fewer at the end of the queue."""
        start = offset * ENTRY.size
        end = min(start + count * ENTRY.size, self._flushed + len(self._tail))
        if start >= end:
            return b""
        if start >= self._flushed:
            return bytes(self._tail[start - self._flushed : end - self._flushed])
        on_disk = self._read_files(start, min(end, self._flushed))
        return on_disk + bytes(self._tail[: max(0, end - self._flushed)])

    def entry(self, offset: int) -> tuple[int, int, int]:
        """Return physical offset, size and code of one entry; raise struct.error beyond the end."""
        physical, size, code = ENTRY.unpack(self.read(offset, 1))
        return physical, size, code

    def replace(self, offset: int, entry: bytes) -> None:
        """Replace the entry of *offset*, which was wrong. Raise OSError."""
        at = offset * ENTRY.size
        if at >= self._flushed:
            at -= self._flushed
            self._tail[at : at + ENTRY.size] = entry
            return
        start = at - at % self._file_bytes
        write_at(self._descriptor(start), entry, at - start)
        sums = self._sums_of(start)
        sums.changed(at - start)
        self._written.update((self._path(start), sums.path))

    def flush(self) -> None:
        """Write entries in memory to the operating system. Raise OSError, keeping the rest."""
        while self._tail:
            start = self._flushed - self._flushed % self._file_bytes
            room = start + self._file_bytes - self._flushed
            part = bytes(self._tail[:room])
            path = self._path(start)
            descriptor = self._descriptor(start)
            write_at(descriptor, part, self._flushed - start)
            self._sums_of(start).wrote(self._flushed - start, part)
            if start not in self._starts:
                self._starts.append(start)
            self._written.add(path)
            self._flushed += len(part)
            del self._tail[:room]

    def leave(self) -> None:
        """Close files and free memory before the folder is deleted."""
        for start in self._starts:
            self._files.forget(self._path(start))
            self._files.forget(sums_path(self._path(start)))
        self._sums.clear()
        self._starts.clear()
        self._tail.clear()
        self._written.clear()
        self._flushed = 0

    def renew_sum(self, offset: int) -> None:
        """Compute the checksum of the entry of *offset* and those of its block again: they are
        right.
        """
        at = offset * ENTRY.size
        start = at - at % self._file_bytes
        if start in self._starts:
            sums = self._sums_of(start)
            sums.changed(at - start)
            self._written.add(sums.path)

    def matches_sums(self) -> bool:
        """Return whether all entries on disk match their checksums. Raise OSError."""
        for start in self._starts:
            size = min(self._file_bytes, self._flushed - start)
            if size > 0 and self._sums_of(start).wrong_entries(0, size):
                return False
        return True

    def take_written(self) -> set[Path]:
        """Return the files written since the last call, and the folders of new ones."""
        written, self._written = self._written, set()
        return written

    def first_at_or_behind(self, physical: int) -> int:
        """Return the queue offset of the first message at or after *physical*, or the end offset.

        Messages of a queue are in queue order in the log, so this is a binary search. A wrong entry
        may mislead it, but not past others that are behind.
        """
        found = self._search(physical)
        first = self.first_offset
        while found > first:
            near = range(max(first, found - _NEAR_ENTRIES), found)
            behind = [each for each in near if not self._is_before(each, physical)]
            if not behind:
                break
            found = behind[0]
        return found

    def _is_before(self, offset: int, physical: int) -> bool:
        place, size, _ = self.entry(offset)
        return (size == 0 and place <= 0) or place < physical

    def _search(self, physical: int) -> int:
        low, high = self.first_offset, self.end_offset
        while low < high:
            middle = (low + high) // 2
            if self._is_before(middle, physical):
                low = middle + 1
            else:
                high = middle
        return low

    def start_at(self, offset: int) -> None:
        """Remove all entries; the next one is number *offset*."""
        self.cut(0)
        if offset:
            self.cut(offset - 1)
            self.append(ENTRY.pack(START_MARK, 0, 0))

    def end_empty_at(self, offset: int) -> None:
        """Empty the queue, which continues at *offset*, durably. Raise OSError.

        Unlike after ``start_at``, a queue without messages in the log keeps its next offset over
        any crash, because its files contain it. Blocks until it is on disk; on a full disk entries
        stay.
        """
        if not offset:
            self.cut(0)
            return
        last = (offset - 1) * ENTRY.size
        start = last - last % self._file_bytes
        alone = self._starts == [start] and self.end_offset == offset
        if alone and self.entry(offset - 1)[0] == START_MARK:
            return  # done by an earlier start; thousands of queues may be so
        try:
            self._replace(start, mark_at=last - start)
        except OSError:
            self.cut(offset)
            return
        for other in [s for s in self._starts if s != start]:
            self._delete(other)
        self._sums_of(start).delete()
        self._starts, self._flushed = [start], offset * ENTRY.size
        self._tail.clear()

    def _replace(self, start: int, *, mark_at: int) -> None:
        """Make the file of *start* one of empty entries, the last of them at *mark_at*."""
        path = self._path(start)
        fresh = path.with_suffix(".new")
        make_folder(self.folder)
        try:
            with create(fresh) as file:
                file.seek(mark_at)
                file.write(ENTRY.pack(START_MARK, 0, 0))
                file.flush()
                os.fdatasync(file.fileno())
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self._files.forget(path)
        fresh.replace(path)

    def cut(self, end_offset: int) -> None:
        """Remove entries from *end_offset* on, or pad the queue up to it with empty ones."""
        self.flush()
        end = end_offset * ENTRY.size
        for start in [s for s in self._starts if s >= end]:
            self._starts.remove(start)
            self._delete(start)
        start = end - end % self._file_bytes
        if end > start:
            os.ftruncate(self._descriptor(start), end - start)
            if start not in self._starts:
                self._starts.append(start)
            sums = self._sums_of(start)
            sums.cut(end - start)
            self._written.update((self._path(start), sums.path))
        self._flushed = end

    def cut_behind(self, physical: int) -> None:
        """Remove the entries of messages at or after *physical*, and all invalid entries.

        For startup: files that were not synced may end in zeros, or lack entries that have a sum.
        """
        end = self.end_offset
        for offset, place, size in self._backwards():
            if place == START_MARK or (size > 0 and 0 <= place <= physical - size):
                break
            end = offset
        if end < self.end_offset or self._sums_exceed():
            self.cut(end)

    def _sums_exceed(self) -> bool:
        start = self._starts[-1] if self._starts else None
        return start is not None and self._sums_of(start).exceed(self._flushed - start)

    def delete_before(self, offset: int) -> None:
        """Delete files with entries below *offset* only; the last file stays."""
        while len(self._starts) > 1 and self._starts[1] <= offset * ENTRY.size:
            self._written.discard(self._path(self._starts[0]))
            self._delete(self._starts[0])
            del self._starts[0]

    def _delete(self, start: int) -> None:
        """Delete the file of *start* and its sums. Raise OSError."""
        path = self._path(start)
        self._files.forget(path)
        path.unlink(missing_ok=True)
        self._sums_of(start).delete()
        del self._sums[start]

    def _sums_of(self, start: int) -> EntrySums:
        sums = self._sums.get(start)
        if sums is None:
            sums = self._sums[start] = EntrySums(
                self._path(start),
                files=self._files,
                entry_bytes=ENTRY.size,
                read=partial(self._read_file, start),
            )
        return sums

    def _read_file(self, start: int, position: int, size: int) -> bytes:
        return os.pread(self._files.descriptor(self._path(start)), size, position)

    def _compare(self, start: int, position: int, size: int) -> None:
        """Have entries repaired that do not match their sums, in one file."""
        sums = self._sums_of(start)
        for at, count in sums.wrong_entries(position, size):
            if self._on_wrong is None or not self._on_wrong(
                self, (start + at) // ENTRY.size, count
            ):
                sums.compare_again()

    def _descriptor(self, start: int) -> int:
        """Return the descriptor of the file of *start*, creating it if needed."""
        path = self._path(start)
        if start not in self._starts:
            make_folder(self.folder)
            # If its folder was not synced, the file may be gone after a power failure.
            self._written.update(self.folder.parents[:2], (self.folder,))
            if (sums := self._sums_of(start)).exceed(0):  # of a file that is gone
                sums.cut(0)
                self._written.add(sums.path)
        return self._files.descriptor(path, create=True)

    def _path(self, start: int) -> Path:
        if start != self._last_start:  # reads and writes are nearly always in the same file
            self._last_path = self.folder / f"{start:020d}"
            self._last_start = start
        return self._last_path

    def _read_files(self, start: int, end: int) -> bytes:
        parts = []
        while start < end:
            file_start = start - start % self._file_bytes
            stop = min(end, file_start + self._file_bytes)
            self._compare(file_start, start - file_start, stop - start)
            descriptor = self._files.descriptor(self._path(file_start))
            parts.append(os.pread(descriptor, stop - start, start - file_start))
            start = stop
        return b"".join(parts) if len(parts) > 1 else parts[0]

    def _length_on_disk(self) -> int:
        if not self._starts:
            return 0
        size = min(self._path(self._starts[-1]).stat().st_size, self._file_bytes)
        return self._starts[-1] + size - size % ENTRY.size

    def _backwards(self, step: int = 4096) -> Iterator[tuple[int, int, int]]:
        """Yield queue offset, position and size of the entries, last one first."""
        end, first = self.end_offset, self.first_offset
        while end > first:
            begin = max(first, end - step)
            block = list(ENTRY.iter_unpack(self.read(begin, end - begin)))
            for index in range(len(block) - 1, -1, -1):
                yield begin + index, block[index][0], block[index][1]
            end = begin


def _find_files(folder: Path, file_bytes: int) -> list[int]:
    """Return starts of consecutive files without a gap; delete the files after a gap."""
    if not folder.is_dir():
        return []
    starts: list[int] = []
    expected = None
    for path in sorted(p for p in folder.iterdir() if p.name.isdigit()):
        start = int(path.name)
        if expected is None or start == expected:
            starts.append(start)
            # No file can follow a short one, so no start equals this.
            expected = start + file_bytes if path.stat().st_size >= file_bytes else -1
        else:
            path.unlink()  # a queue growing into it would find stale entries
    return starts
