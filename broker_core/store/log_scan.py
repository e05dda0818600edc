"""Iteration over the intact messages of a log, from one to the next and over damage in between.

Damage is a *gap*: bytes between intact messages, or between one and the end of a segment. Where the
size of a damaged message leads to an intact one, the gap ends there. Otherwise the next intact
message is searched byte by byte: a message names its own place, so other bytes do not pass for one.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, Protocol

from broker_core.remoting.message import FIXED_BYTES, MAGIC_BLANK, StoredMessage
from broker_core.store.commit_log import FILLER
from broker_core.store.files import OpenFiles
from broker_core.store.record_check import NotIntact, intact_message, next_candidate
from broker_core.store.segments import Segment, used_bytes

_CHUNK_BYTES = 4 * 1024 * 1024
_SECTOR_BYTES = 512
_ZEROS = bytes(_SECTOR_BYTES)
_PAGE_BYTES = 4096  # read from a disk at once at least
#: In place of bytes that the disk cannot read: zeros would look as if they were never written.
_UNREADABLE = b"\xee"
UNREADABLE = "the disk cannot read it"


class Gap(NamedTuple):
    """Bytes of the log that are no intact message.

    ``path`` and ``position``: the file of the first one, and its place in the file. ``unwritten``:
    whole sectors are zero, as a power failure leaves writes that it interrupted.
    """

    start: int
    end: int
    path: Path
    position: int
    reason: str
    unwritten: bool = False

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start


class ReadableLog(Protocol):
    """The part of a log that a scan reads."""

    @property
    def segments(self) -> Sequence[Segment]:
        """Its segments, ascending."""

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that contains *offset*."""

    def read_segment(self, segment: Segment, offset: int, size: int) -> bytes:
        """Return up to *size* bytes of a segment. Raise OSError."""


class LogView:
    """Segments of a log for a scan that changes nothing, in any thread; close it afterwards."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = [replace(each) for each in segments]
        self._files = OpenFiles(limit=4, read_only=True)

    @classmethod
    def of_files(cls, folder: Path) -> LogView:
        """Return the view of all files in *folder*, of which some may be missing or short."""
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        starts = sorted(int(name) for name in names if name.isdigit())
        segments = []
        for start, following in zip_longest(starts, starts[1:]):
            path = folder / f"{start:020d}"
            size = path.stat().st_size
            capacity = size if following is None else min(size, following - start)
            segments.append(Segment(path, start, capacity))
        return cls(segments)

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that contains *offset*."""
        at = bisect_right(self.segments, offset, key=lambda each: each.start) - 1
        return self.segments[at] if at >= 0 and offset < self.segments[at].end else None

    def read_segment(self, segment: Segment, offset: int, size: int) -> bytes:
        """Return up to *size* bytes of a segment. Raise OSError."""
        return os.pread(self._files.descriptor(segment.path), size, offset - segment.start)

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def is_unreadable(error: Exception) -> bool:
    """Return whether *error* means that the disk cannot read bytes, such as a bad sector."""
    return isinstance(error, OSError) and error.errno == errno.EIO


class UnreadableAsDamage:
    """A log in which pages that the disk cannot read are other bytes, so that they are damage.

    For examinations only: where bytes may be dropped or copied, an error must not look like damage.
    """

    def __init__(self, log: ReadableLog) -> None:
        self._log = log
        #: Ranges that could not be read.
        self.unreadable: list[range] = []

    @property
    def segments(self) -> Sequence[Segment]:
        """Its segments, ascending."""
        return self._log.segments

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that contains *offset*."""
        return self._log.segment_at(offset)

    def read_segment(self, segment: Segment, offset: int, size: int) -> bytes:
        """Return up to *size* bytes of a segment. Raise OSError, but not for a bad sector."""
        try:
            return self._log.read_segment(segment, offset, size)
        except OSError as error:
            if not is_unreadable(error):
                raise
        data, end = bytearray(), min(offset + size, segment.end)
        while (at := offset + len(data)) < end:
            page_end = min(end, at + _PAGE_BYTES - (at - segment.start) % _PAGE_BYTES)
            try:
                page = self._log.read_segment(segment, at, page_end - at)
            except OSError as error:
                if not is_unreadable(error):
                    raise
                page = _UNREADABLE * (page_end - at)
                self.unreadable.append(range(at, page_end))
            data += page
            if len(page) < page_end - at:
                break  # the file ends there
        return bytes(data)

    def named(self, gap: Gap) -> Gap:
        """Return *gap*, with the reason if it is damage because it cannot be read."""
        hit = any(each.start < gap.end and gap.start < each.stop for each in self.unreadable)
        return gap._replace(reason=UNREADABLE) if hit else gap


class LogScan:
    """Iterates over the intact messages from *start* on, up to *until* or the last one.

    ``end`` is the end of the last message or segment so far, ``gaps`` the damage before it, and
    ``reason`` why nothing intact follows.
    """

    def __init__(self, log: ReadableLog, *, start: int, until: int | None = None) -> None:
        self.end = start
        self.gaps: list[Gap] = []
        self.reason = ""
        self._log = log
        self._until = until
        self._chunk, self._chunk_at = b"", -1
        self._chunk_of: Segment | None = None
        self._gap_start: int | None = None
        self._gap_reason = ""

    @property
    def damaged_from(self) -> int | None:
        """Return the start of damage that nothing intact follows, or None."""
        return self._gap_start

    def __iter__(self) -> Iterator[StoredMessage]:
        for segment in list(self._log.segments):
            if segment.start <= self.end < segment.end or self._continues_in(segment):
                yield from self._messages(segment)

    def _continues_in(self, segment: Segment) -> bool:
        """Return whether the last segment ended in damage, and *segment* follows it."""
        return self._gap_start is not None and segment.start > self._gap_start

    def _messages(self, segment: Segment) -> Iterator[StoredMessage]:
        position = max(self.end, segment.start)
        used_end: int | None = None
        while position + FILLER.size <= segment.end and not self._is_over(position):
            found = self._at(segment, position)
            if isinstance(found, StoredMessage):
                self._close_gap(position)
                position += found.size
                self.end = position
                yield found
                continue
            if found is None:
                self._close_gap(position)
                self.end = segment.end
                return
            if self._gap_start is None:
                self._gap_start, self._gap_reason = position, found
                following = self._following(segment, position)
                if following is not None:
                    position = following
                    continue
            if used_end is None:
                used_end = _used_end(segment, position)
            candidate = self._search(segment, position + 1, used_end)
            if candidate is None:
                break
            position = candidate
        if self._gap_start is None:
            self.end = segment.end if position + FILLER.size > segment.end else self.end
        elif segment is self._log.segments[-1]:
            self.reason = self._gap_reason

    def _is_over(self, position: int) -> bool:
        return self._until is not None and position >= self._until

    def _close_gap(self, end: int) -> None:
        if self._gap_start is None:
            return
        self.gaps.append(self.gap_of(self._gap_start, end, self._gap_reason))
        self._gap_start = None

    def gap_of(self, start: int, end: int, reason: str) -> Gap:
        """Return the gap from *start* to *end* of the log."""
        segment = self._log.segment_at(start)
        assert segment is not None
        position = start - segment.start
        data = self._log.read_segment(
            segment, start, min(end, segment.end, start + _CHUNK_BYTES) - start
        )
        if start + len(data) == segment.end:  # its last sector may be shorter
            data = data.ljust(len(data) + -segment.capacity % _SECTOR_BYTES, b"\0")
        unwritten = any(
            data.startswith(_ZEROS, at)
            for at in range(-position % _SECTOR_BYTES, len(data), _SECTOR_BYTES)
        )
        return Gap(start, end, segment.path, position, reason, unwritten)

    def _at(self, segment: Segment, position: int) -> StoredMessage | str | None:
        """Return the message at *position*, None for a filler, or why it is neither."""
        at = self._load(segment, position, FILLER.size)
        if len(self._chunk) - at < FILLER.size:
            return "the file ends there"
        size, magic = FILLER.unpack_from(self._chunk, at)
        if magic == MAGIC_BLANK and self._ends(segment, position + size):
            return None  # behind damage only a filler that fits: a body may look like one
        if not FIXED_BYTES <= size <= segment.end - position:
            return "no message starts there"
        at = self._load(segment, position, size)
        try:
            return intact_message(self._chunk, at, place=position, segment_start=segment.start)
        except NotIntact as error:
            return str(error)

    def _ends(self, segment: Segment, end: int) -> bool:
        """Return whether *segment* ends at *end*, according to a filler."""
        is_last = segment is self._log.segments[-1] and self._gap_start is None
        if is_last and segment.start < end < segment.end:
            # The last one of a copied log: its length is not a setting of this broker.
            segment.resize(end - segment.start)
        return end == segment.end

    def _following(self, segment: Segment, position: int) -> int | None:
        """Return where the size of a damaged message leads, if something intact is there."""
        at = self._load(segment, position, FILLER.size)
        if len(self._chunk) - at < FILLER.size:
            return None
        size, _ = FILLER.unpack_from(self._chunk, at)
        following = position + size
        if size < FIXED_BYTES or following + FILLER.size > segment.end:
            return None
        return None if isinstance(self._at(segment, following), str) else following

    def _search(self, segment: Segment, position: int, end: int) -> int | None:
        """Return the next place before *end* at which a message may start."""
        while position < end:
            at = self._load(segment, position, FILLER.size)
            candidate = next_candidate(self._chunk, at)
            if candidate is not None:
                return position + candidate - at
            position += max(1, len(self._chunk) - at - FILLER.size + 1)
        return None

    def _load(self, segment: Segment, position: int, size: int) -> int:
        """Have *size* bytes from *position* on in the chunk, if the file has them; return where."""
        at = position - self._chunk_at
        if self._chunk_of is not segment or at < 0 or at + size > len(self._chunk):
            self._chunk = self._log.read_segment(segment, position, max(size, _CHUNK_BYTES))
            self._chunk_at, self._chunk_of, at = position, segment, 0
        return at


def _used_end(segment: Segment, position: int) -> int:
    """Return the end of the nonzero bytes from *position* on. Raise OSError."""
    try:
        return position + used_bytes(segment.path, position - segment.start)
    except OSError as error:
        if is_unreadable(error):
            return segment.end
        raise
