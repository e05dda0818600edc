"""Comparison of index entries with the messages of the log that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker_core.names import Topic
from broker_core.remoting.message import FIXED_BYTES, StoredMessage
from broker_core.store.commit_log import FILLER
from broker_core.store.consume_queue import ENTRY, START_MARK
from broker_core.store.entry_code import entry_code_of
from broker_core.store.log_scan import ReadableLog
from broker_core.store.record_check import NotIntact, intact_message

Entry = tuple[int, int, int]  # place, size and code


class Entries(NamedTuple):
    """Consecutive entries of a queue, from offset *first* on; *behind* follows them, if any."""

    topic: Topic
    queue_id: int
    first: int
    entries: Sequence[Entry]
    behind: Entry | None


class Compared(NamedTuple):
    """Findings of a comparison.

    ``corrected``: packed entries of messages at the right places, by offset, whose entries differ.
    ``doubtful``: offsets of which only the log around them can tell, ascending.
    """

    corrected: dict[int, bytes]
    doubtful: list[int]


def bytes_to_read(entries: Sequence[Entry], *, end: int) -> int:
    """Return the number of bytes of the messages in a log that ends at *end*."""
    return sum(size for place, size, _ in entries if size > 0 and 0 <= place <= end - size)


def compared(log: ReadableLog, found: Entries, *, begin: int, end: int) -> Compared:
    """Compare entries with *log*, which has bytes from *begin* to *end*. Raise OSError."""
    result = Compared({}, [])
    following = found.behind
    deleted = following is not None and _is_mark(following)  # as the run of empty entries here
    for offset, entry in zip(
        range(found.first + len(found.entries) - 1, found.first - 1, -1),
        reversed(found.entries),
        strict=True,
    ):
        place, size, _ = entry
        is_empty = size == 0 and place <= 0
        # Empty entries stand for messages deleted before a rebuild; the last one is marked.
        deleted = is_empty and (deleted or _is_mark(entry))
        if is_empty:
            if not deleted:
                result.doubtful.append(offset)
        elif size > 0 and place + size <= begin:
            # The last one deleted may be the first one left, if its place is wrong.
            if following is None or not place + size <= following[0] < begin:
                result.doubtful.append(offset)
        else:
            message = _message_at(log, place, end=end)
            is_named = message is not None and (
                message.topic,
                message.queue_id,
                message.queue_offset,
            ) == (found.topic, found.queue_id, offset)
            if message is not None and is_named:
                code = entry_code_of(found.topic, message.raw_properties)
                right = (place, message.size, code)
                if entry != right:
                    result.corrected[offset] = ENTRY.pack(*right)
            elif size != 0:  # otherwise no message was completed there, as the entry states
                result.doubtful.append(offset)
        following = entry
    result.doubtful.reverse()
    return result


def _is_mark(entry: Entry) -> bool:
    return entry[:2] == (START_MARK, 0)


def _message_at(log: ReadableLog, place: int, *, end: int) -> StoredMessage | None:
    """Return the intact message at *place*, if there is one before *end*. Raise OSError."""
    segment = log.segment_at(place) if 0 <= place <= end - FIXED_BYTES else None
    if segment is None:
        return None
    head = log.read_segment(segment, place, FILLER.size)
    if len(head) < FILLER.size:
        return None
    size, _ = FILLER.unpack(head)
    if not FIXED_BYTES <= size <= min(segment.end, end) - place:
        return None
    try:
        data = log.read_segment(segment, place, size)
        return intact_message(data, 0, place=place, segment_start=segment.start)
    except NotIntact:
        return None
