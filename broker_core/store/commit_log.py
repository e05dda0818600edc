"""The commit log: all messages of a broker, in order, in files of equal length.

1. A message lies in one segment completely; the rest of a full segment is marked by a filler
   (int32 length, int32 magic), as in RocketMQ.
2. The data of one ``write`` goes into one segment with one write: all of it or nothing.
3. A segment is allocated before it is used, so a sync moves data only, and a full disk is noticed
   before a byte is written. Bytes after the end of the log are zero.
4. A write that finds no room is undone, and the next one tries again. After any other failed write
   or sync the state of the disk is unknown: the log stays read-only until it is opened again.
"""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker_core.errors import MayBeStored, StoreError
from broker_core.private_files import FILE_MODE, make_folder
from broker_core.remoting.message import MAGIC_BLANK
from broker_core.store.files import OpenFiles, sync_file, sync_folder, write_at
from broker_core.store.segments import (
    Segment,
    allocate,
    copy_aside,
    dropped_path,
    find_segments,
    used_bytes,
)

FILLER = struct.Struct(">iI")
#: Copying this gap from the page cache takes as long as another read; most bytes per read.
_NEAR_BYTES = 4096
READ_AT_ONCE_BYTES = 120 * 1024  # allocated without new pages, and copied out of a cache
#: No room: on the disk, in a quota, or below the process's limit for the size of a file.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class Sync:
    """A sync for ``run`` in any thread; afterwards the log is on disk up to ``end``."""

    end: int
    descriptors: tuple[int, ...]
    #: Those of them whose segments are full: this sync is their last one.
    full: tuple[int, ...] = ()

    def run(self) -> None:
        """Block until the data is on disk. Raise OSError."""
        for descriptor in self.descriptors:
            os.fdatasync(descriptor)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Bytes that ``open_at`` removed: *size* bytes from ``position`` of ``path``. False if none.

    Bytes of later segments are counted as well, zeros at the end are not.
    """

    size: int
    path: Path
    position: int

    def __bool__(self) -> bool:
        return self.size > 0


class CommitLog:
    """The segments of *folder*. One thread only, except ``Sync.run``. Offsets are in bytes."""

    def __init__(self, folder: Path, *, segment_bytes: int) -> None:
        """List the segments; ``open_at`` makes the log writable.

        Raises StoreError if a segment between others is missing.
        """
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._files = OpenFiles(limit=64)
        self._active: int | None = None  # descriptor of the last segment
        self._allocated = False  # in full length
        self._full: list[int] = []  # descriptors of segments completed since the last sync
        self._failure: OSError | None = None
        self.deletion_unsynced = False  #: descriptors of full segments, not synced
        make_folder(folder)
        self.segments = find_segments(folder, segment_bytes)
        self.end_offset = self.segments[-1].start if self.segments else 0

    @property
    def first_offset(self) -> int:
        """Offset of the oldest byte kept."""
        return self.segments[0].start if self.segments else self.end_offset

    @property
    def largest_append_bytes(self) -> int:
        """Largest size of one ``write``."""
        return self._segment_bytes - FILLER.size

    def require(self, on_disk: int, *, begin: int) -> None:
        """Have all bytes before *on_disk*, which were there; missing ones become zeros.

        A file that ends early is lengthened, a missing last one created. *begin*: the first of the
        bytes; a log that began at its end has no files. Raises OSError, and StoreError if the files
        of another one are missing.
        """
        if on_disk <= self.end_of_files or (not self.segments and begin == on_disk):
            return
        if not self.segments:
            raise StoreError(
                f"the files of the commit log {self._folder} are missing: {on_disk} bytes were"
                " written; restore them, or delete checkpoint.json to begin an empty log"
            )
        last = self.segments[-1]
        if on_disk > last.end:
            os.truncate(last.path, last.capacity)  # a short file before another one is a hole
            path = self._folder / f"{last.end:020d}"
            self.segments.append(
                Segment(path, last.end, max(self._segment_bytes, on_disk - last.end))
            )
            path.touch(FILE_MODE)
        last = self.segments[-1]
        os.truncate(last.path, on_disk - last.start)

    @property
    def end_of_files(self) -> int:
        """Offset after the last byte of the files."""
        if not self.segments:
            return self.end_offset
        last = self.segments[-1]
        return last.start + last.path.stat().st_size

    def open_at(self, end: int, *, synced: int = 0) -> Dropped:
        """Make *end* the end of the log, with all bytes before it on disk. Raise OSError.

        *synced*: offset up to which the log is on disk already. Bytes after *end* move to
        ``*.dropped`` files, named by the log offset of their first byte. Only people delete them.
        """
        dropped = 0
        while self.segments and self.segments[-1].start > end:
            segment = self.segments.pop()
            self._files.forget(segment.path)  # recovery read it; a new one may get its name
            if used := used_bytes(segment.path, 0):
                dropped += used
                segment.path.rename(dropped_path(segment.path))
            else:
                segment.path.unlink()
        # Before the last segment changes: shortened in front of another one, it would be a hole.
        sync_folder(self._folder)
        self.end_offset = end
        if not self.segments:
            return Dropped(dropped, self._folder, end)
        last = self.segments[-1]
        used = end - last.start
        stale = used_bytes(last.path, used)
        if self._active is not None:
            os.close(self._active)
        self._active = os.open(last.path, os.O_RDWR)
        with suppress(OSError):  # a full disk; the log can still be read
            copy_aside(last.path, used, stale, to=dropped_path(self._folder / f"{end:020d}"))
        if stale:
            self._give_back_room()  # stale bytes after the end must not reappear
        with suppress(OSError):
            self._allocate_active()
        for segment in self.segments[:-1]:
            if segment.end > synced:  # after a kill it may be in the system's cache only
                sync_file(segment.path)
        os.fdatasync(self._active)
        return Dropped(dropped + stale, last.path, used)

    def begin_at(self, end: int) -> Dropped:
        """Move all segments to ``*.dropped``; the empty log continues at *end*.

        For a log before ``open_at``. Raises OSError, and may be repeated.
        """
        dropped = 0
        while self.segments:
            segment = self.segments[0]
            dropped += used_bytes(segment.path, 0)
            self._files.forget(segment.path)
            segment.path.rename(dropped_path(segment.path))
            del self.segments[0]
        sync_folder(self._folder)
        self.end_offset = end
        return Dropped(dropped, self._folder, 0)

    def make_room(self, size: int, *, short_segment: bool = False) -> int:
        """Return the offset of the next ``write`` of *size* bytes, in this or a new segment.

        *short_segment*: if the disk has no room for a whole new segment, make one of *size* bytes.
        Raises OSError on a full or failing disk, and ValueError above ``largest_append_bytes``.
        """
        if size > self.largest_append_bytes:
            raise ValueError(f"cannot append {size} bytes: at most {self.largest_append_bytes}")
        if self._failure is not None:
            raise OSError(errno.EIO, f"the log failed before: {self._failure.strerror}")
        try:
            if self._active is None or self.end_offset + size + FILLER.size > self.segments[-1].end:
                self._roll()
            elif not self._allocated:
                self._allocate_active()
        except OSError as error:
            if not short_segment or error.errno not in _NO_ROOM:
                raise
            self._roll(size + FILLER.size)
        return self.end_offset

    def write(self, data: bytes) -> None:
        """Append complete messages, encoded for the offset that ``make_room`` returned.

        They are on disk only after a sync. Raises OSError, with nothing appended, and MayBeStored
        if a start may find some of them.
        """
        assert self._active is not None
        try:
            write_at(self._active, data, self.end_offset - self.segments[-1].start)
        except OSError as error:
            if error.errno in _NO_ROOM and self._undo():
                raise
            if self._failure is None:
                self.fail(error)
            raise MayBeStored(error.errno, error.strerror) from error
        self.end_offset += len(data)

    def append_copied(
        self, data: bytes, *, segment_start: int, segment_bytes: int, filled: bool
    ) -> None:
        """Append *data* of another log, in a segment equal to the other log's.

        Not on disk before a sync. Raises OSError as ``write``, and StoreError if this log ends in
        another segment.

        Args:
            data: complete messages
            segment_start: offset at which the other log's segment begins
            segment_bytes: length of that segment
            filled: the segment ends after *data*
        """
        if self._failure is not None:
            raise OSError(errno.EIO, f"the log failed before: {self._failure.strerror}")
        end = self.end_offset
        if self._active is None or end == self.segments[-1].end:
            if segment_start != end:
                raise StoreError(
                    f"the log ends at {end}, a segment at {segment_start} cannot follow"
                )
            self._roll(segment_bytes)
        elif segment_start != self.segments[-1].start:
            raise StoreError(
                f"the log's last segment starts at {self.segments[-1].start}, the copied one at"
                f" {segment_start}"
            )
        elif self.segments[-1].capacity != segment_bytes:  # found by a start with another setting
            self.segments[-1].resize(segment_bytes)
            os.ftruncate(self._active, max(segment_bytes, end - segment_start))
            self._allocated = False
        if not self._allocated:
            self._allocate_active()
        self.write(data)
        if filled:
            self.end_offset = self.segments[-1].end

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that contains *offset*."""
        at = bisect_right(self.segments, offset, key=_start) - 1
        return self.segments[at] if at >= 0 and offset < self.segments[at].end else None

    def read(self, offset: int, size: int) -> bytes:
        """Return *size* bytes of one segment. Raise StoreError if they do not exist."""
        at = bisect_right(self.segments, offset, key=_start) - 1
        segment = self.segments[at] if at >= 0 else None
        if segment is None or offset + size > min(segment.end, self.end_offset):
            raise StoreError(f"commit log holds no {size} bytes at offset {offset}")
        return os.pread(self._files.descriptor(segment.path), size, offset - segment.start)

    def read_pieces(self, pieces: Sequence[tuple[int, int]]) -> bytes:
        """Return the concatenated (offset, size) *pieces*, which must ascend.

        Pieces close to each other are read together: that costs less than another read, even if
        most of the bytes are unused. Raises StoreError as ``read``.
        """
        parts: list[bytes] = []
        at, count = 0, len(pieces)
        while at < count:
            start, size = pieces[at]
            first, end = at, start + size
            limit = min(start + READ_AT_ONCE_BYTES, self._end_of_segment_at(start))
            at += 1
            while at < count:
                place, size = pieces[at]
                if place - end > _NEAR_BYTES or place + size > limit:
                    break
                end = place + size
                at += 1
            data = self.read(start, end - start)
            if at == first + 1:
                parts.append(data)
            else:
                parts += [data[p - start : p - start + n] for p, n in pieces[first:at]]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_segment(self, segment: Segment, offset: int, size: int) -> bytes:
        """Return up to *size* bytes of a segment without checking them, for recovery."""
        return os.pread(self._files.descriptor(segment.path), size, offset - segment.start)

    def _end_of_segment_at(self, offset: int) -> int:
        at = bisect_right(self.segments, offset, key=_start) - 1
        return self.segments[at].end if at >= 0 else offset

    def start_sync(self) -> Sync:
        """Return the sync that brings everything appended so far to disk."""
        active = () if self._active is None else (self._active,)
        full = tuple(self._full)
        return Sync(self.end_offset, (*full, *active), full)

    def finish_sync(self, sync: Sync) -> None:
        """Note that *sync*, the only one under way, has run.

        A segment that was active when it began, and is full now, may have grown since.
        """
        for descriptor in sync.full:
            self._full.remove(descriptor)
            os.close(descriptor)

    @property
    def failure(self) -> OSError | None:
        """The error after which the log is read-only; None while it is writable."""
        return self._failure

    def fail(self, error: OSError) -> None:
        """Make the log read-only: a sync failed with *error*."""
        self._failure = error

    def has_expired_segment(self, *, before_ms: int | None, keep_bytes: int | None) -> bool:
        """Return whether the oldest segment may be deleted. Never true of the last one.

        It was last written before *before_ms*, or the log is *keep_bytes* long without it.
        """
        if len(self.segments) < 2:
            return False
        oldest = self.segments[0]
        if keep_bytes is not None and self.end_offset - oldest.end >= keep_bytes:
            return True
        return before_ms is not None and oldest.path.stat().st_mtime * 1000 < before_ms

    def detach_first_segment(self) -> Segment:
        """Stop reading the oldest segment, so that its file can be deleted in any thread.

        Raises IndexError for the last segment. If the deletion fails, call ``reattach``.
        """
        segment = self.segments[:-1][0]
        self._files.forget(segment.path)
        del self.segments[0]
        return segment

    def reattach(self, segment: Segment) -> None:
        """Undo ``detach_first_segment``: a later start would find a hole."""
        self.segments.insert(0, segment)

    def note_deleted_segment(self, *, synced: bool) -> None:
        """Note that the file of the left segment is deleted; *synced*: durably."""
        self.deletion_unsynced = not synced

    def close(self) -> None:
        """Close the files without a sync."""
        self._files.close()
        for descriptor in self._full:
            os.close(descriptor)
        self._full.clear()
        if self._active is not None:
            os.close(self._active)
            self._active = None

    def _undo(self) -> bool:
        """Undo a write that found no room; if that fails, the log has failed: return False."""
        try:
            self._give_back_room()
        except OSError as error:
            self.fail(error)
            return False
        return True

    def _give_back_room(self) -> None:
        """Remove bytes after the end: a complete message there would reappear at a start."""
        assert self._active is not None
        self._allocated = False
        os.ftruncate(self._active, self.end_offset - self.segments[-1].start)

    def _allocate_active(self) -> None:
        assert self._active is not None
        os.posix_fallocate(self._active, 0, self.segments[-1].capacity)
        self._allocated = True

    def _roll(self, capacity: int | None = None) -> None:
        """Start a new segment; its file is made first, so that a full disk changes nothing."""
        start = self.segments[-1].end if self.segments else self.end_offset
        capacity = self._segment_bytes if capacity is None else capacity
        segment = Segment(self._folder / f"{start:020d}", start, capacity)
        self._lengthen_active()
        descriptor = allocate(segment)
        if self._active is not None:
            try:
                self._fill()
            except OSError:
                os.close(descriptor)
                segment.path.unlink()  # on a full disk every byte counts
                raise
            self._full.append(self._active)
        self.segments.append(segment)
        self._active = descriptor
        self._allocated = True
        self.end_offset = start

    def _lengthen_active(self) -> None:
        """Extend the last file to its full length: before another segment it would be a hole."""
        if self._active is None:
            return
        last = self.segments[-1]
        if os.fstat(self._active).st_size < last.capacity:  # opened, or written, without room
            os.ftruncate(self._active, last.capacity)
            sync_file(last.path)

    def _fill(self) -> None:
        """Mark the rest of the last segment as unused; its length stays, even if this fails."""
        assert self._active is not None
        last = self.segments[-1]
        if left := last.end - self.end_offset:
            filler = FILLER.pack(left, MAGIC_BLANK)
            try:
                write_at(self._active, filler, self.end_offset - last.start)
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    self.fail(error)
                raise


def _start(segment: Segment) -> int:
    return segment.start
