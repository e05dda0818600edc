"""The waiting delayed messages, derived from consume queues alone.

A delayed message waits in a queue of a delay topic, whose entries contain the due time. It ends
when the log has a message that replaces it: the delivered message, a copy that waits in its place,
or the record of its recall. Each of these has an entry in one more consume queue, that of the ended
messages. The waiting messages are those of the delay queues without an entry there. Like all
consume queues it is rebuilt from the log, so a crash can neither lose a message nor deliver it
twice.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import count

from broker_core.names import TIMER_QUEUE, TIMER_TOPIC, DelayedPlace
from broker_core.store.consume_queue import ENTRY, ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues

_ENTRIES_AT_ONCE = 8192


def ended_queue(queues: ConsumeQueues) -> ConsumeQueue:
    """Return the queue of ended messages; no client can read it, since its topic has one queue."""
    return queues.obtain(TIMER_TOPIC, 1)


def ended_entry(place: int, size: int, prepared_offset: int) -> bytes:
    """Return the entry of a message at *place* of the log, empty if it ends no delayed message."""
    return ENTRY.pack(place, size, -prepared_offset) if prepared_offset < 0 else b""


def count_visible(queues: ConsumeQueues, visible_end: int) -> int:
    """Return the number of entries ever made of messages before *visible_end* of the log.

    A start removes later ones from all other queues, so a checkpoint must not count them.
    """
    ended = ended_queue(queues)
    return queues.count() - (ended.end_offset - ended.first_at_or_behind(visible_end))


class DelayIndex:
    """Reads the delay queues of *queues*. One thread only; all methods raise OSError if the disk
    fails.
    """

    def __init__(self, queues: ConsumeQueues) -> None:
        self._queues = queues

    def waiting(self, lowest: Mapping[int, int]) -> Iterator[tuple[int, DelayedPlace]]:
        """Yield all waiting messages with their due times, queue by queue.

        *lowest* maps a queue to an offset below which nothing waits; queues without one are read
        completely. Takes about 1 µs and, until the end, 8 bytes per message read.
        """
        times: dict[int, tuple[int, array[int]]] = {}
        oldest: int | None = None
        for number in range(TIMER_QUEUE + 1):
            queue = self._find(number)
            if queue is not None and queue.end_offset:
                first = min(max(queue.first_offset, lowest.get(number, 0)), queue.end_offset)
                times[number] = first, array("q", (code for _, _, code in _entries(queue, first)))
                if first < queue.end_offset:
                    place = queue.entry(first)[0]
                    oldest = place if oldest is None else min(oldest, place)
        for ended in self._ended_behind(oldest):
            first, due_times = times.get(ended.queue, (0, array("q")))
            if 0 <= ended.offset - first < len(due_times):
                due_times[ended.offset - first] = 0
        for number, (first, due_times) in times.items():
            for offset, due_ms in enumerate(due_times, first):
                if due_ms > 0:
                    yield due_ms, DelayedPlace(number, offset)

    def arrived(self, number: int, start: int) -> Iterator[tuple[int, DelayedPlace]]:
        """Yield the messages of one queue from offset *start* on, with their due times."""
        queue = self._find(number)
        if queue is not None:
            for offset, (_, _, due_ms) in zip(count(start), _entries(queue, start), strict=False):
                if due_ms > 0:
                    yield due_ms, DelayedPlace(number, offset)

    def end_offset(self, number: int) -> int:
        """Return the offset of the next message of a queue."""
        queue = self._find(number)
        return 0 if queue is None else queue.end_offset

    def before(self, physical: int) -> dict[int, int]:
        """Return by queue the offset of its first message at or after *physical*."""
        return {
            number: queue.first_at_or_behind(physical)
            for number in range(TIMER_QUEUE + 1)
            if (queue := self._find(number)) is not None
        }

    def size(self, place: DelayedPlace) -> int:
        """Return the size in bytes of the message at *place*."""
        queue = self._find(place.queue)
        return 0 if queue is None else queue.entry(place.offset)[1]

    def _find(self, number: int) -> ConsumeQueue | None:
        place = DelayedPlace(number, 0)
        return self._queues.find(place.topic, place.queue_id)

    def _ended_behind(self, physical: int | None) -> Iterator[DelayedPlace]:
        if physical is not None:
            queue = ended_queue(self._queues)
            for _, _, number in _entries(queue, queue.first_at_or_behind(physical)):
                if number > 0:
                    yield DelayedPlace.from_number(number)


def _entries(queue: ConsumeQueue, start: int) -> Iterator[tuple[int, int, int]]:
    while entries := queue.read(start, _ENTRIES_AT_ONCE):
        yield from ENTRY.iter_unpack(entries)
        start += len(entries) // ENTRY.size
