"""Copying the log of one store to another, byte for byte and at the same offsets.

A chunk holds whole messages of one segment, followed by the filler if the segment ends there. The
receiver makes the same segments, so the files of both logs are equal. Damage is copied as it is, if
the chunk names it (``damaged_copies``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.remoting.message import (
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    StoredMessage,
)
from broker_core.store.commit_log import FILLER, CommitLog
from broker_core.store.record_check import NotIntact, intact_message

_WALK_BYTES = 4 * 1024 * 1024


class CopiedGap(NamedTuple):
    """Bytes from *start* to *end* of a log that are no intact message, and why."""

    start: int
    end: int
    reason: str


class LostRun(NamedTuple):
    """Offsets *first* to *end* (excluded) of a queue, whose messages are in the gap at *place*.

    ``unwritten``: they were never confirmed, so readers pass over them.
    """

    topic: Topic
    queue_id: int
    first: int
    end: int
    place: int
    unwritten: bool = False


class Chunk(NamedTuple):
    """Bytes of a log from *offset* on, and the segment that contains them; their damage."""

    offset: int
    data: bytes
    segment_start: int
    segment_bytes: int
    gaps: tuple[CopiedGap, ...] = ()
    lost: tuple[LostRun, ...] = ()

    @property
    def segment_end(self) -> int:
        """Start of the next segment."""
        return self.segment_start + self.segment_bytes


def read_chunk(log: CommitLog, offset: int, *, limit: int, max_bytes: int) -> Chunk | None:
    """Return the bytes from *offset* on and below *limit*, or None if there are none.

    A message larger than *max_bytes* is returned alone. *offset* must be the start of a message or
    the end of the log. Raises StoreError if it is not, OSError if the disk fails.
    """
    segment = log.segment_at(offset)
    if segment is None or offset >= limit:
        return None
    end = min(segment.end, limit)
    data = log.read(offset, min(end - offset, max_bytes))
    whole = _whole_bytes(data, offset)
    if whole == 0:
        size = _head(data, 0, offset)[0]
        if offset + size > end:
            raise StoreError(f"commit log has no whole message at offset {offset}")
        data, whole = log.read(offset, size), size
    return Chunk(offset, data[:whole], segment.start, segment.capacity)


def messages_of(chunk: Chunk) -> tuple[list[StoredMessage], bool]:
    """Return the messages of *chunk*, and whether the segment ends after them.

    Checks every byte outside of its gaps: raises StoreError that names the first invalid one.
    """
    messages: list[StoredMessage] = []
    position = 0
    ends = {each.start: each.end for each in chunk.gaps}
    while position < len(chunk.data):
        place = chunk.offset + position
        if place in ends:
            position = ends[place] - chunk.offset
            continue
        size, magic = _head(chunk.data, position, place)
        if magic == MAGIC_BLANK:
            if place + size != chunk.segment_end or position + FILLER.size != len(chunk.data):
                raise StoreError(f"the segment does not end at offset {place}, as a filler says")
            return messages, True
        try:
            message = intact_message(
                chunk.data, position, place=place, segment_start=chunk.segment_start
            )
        except NotIntact as error:
            raise StoreError(f"the copied data at offset {place} is damaged: {error}") from error
        messages.append(message)
        position += message.size
    return messages, chunk.offset + position == chunk.segment_end


def places_of(log: CommitLog, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield offset and size of the messages from the one at *start* on, below *end*."""
    offset = start
    while offset < end:
        chunk = read_chunk(log, offset, limit=end, max_bytes=_WALK_BYTES)
        if chunk is None:
            return
        position = 0
        while position < len(chunk.data):
            size, magic = _head(chunk.data, position, offset + position)
            if magic != MAGIC_BLANK:
                yield offset + position, size
            position += size
        offset += position


def _whole_bytes(data: bytes, offset: int) -> int:
    position = 0
    while position + FILLER.size <= len(data):
        size, magic = _head(data, position, offset + position)
        if magic == MAGIC_BLANK:
            return position + FILLER.size
        if position + size > len(data):
            break
        position += size
    return position


def _head(data: bytes, position: int, place: int) -> tuple[int, int]:
    """Return size and magic at *position*. Raise StoreError unless a message or filler starts
    there.
    """
    if position + FILLER.size <= len(data):
        size, magic = FILLER.unpack_from(data, position)
        if (magic == MAGIC_BLANK and size >= FILLER.size) or (
            magic in (MAGIC_V1, MAGIC_V2) and size >= FIXED_BYTES
        ):
            return size, magic
    raise StoreError(f"commit log has no message that starts at offset {place}")
