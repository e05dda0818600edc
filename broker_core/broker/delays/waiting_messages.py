"""The waiting delayed messages and their due times, in memory. Pure.

They follow from the log alone, see ``store/delay_index.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker_core.broker.delays.timing_wheel import TimingWheel
from broker_core.names import DelayedPlace

_REGION = 4096  # messages of a queue that are counted together


class Due(NamedTuple):
    """A waiting message and its earliest delivery time (ms since 1970)."""

    due_ms: int
    place: DelayedPlace


class WaitingMessages:
    """The waiting messages of one broker, about 16 bytes each. Not thread-safe."""

    def __init__(self) -> None:
        self._wheel = TimingWheel()
        self._taken: dict[DelayedPlace, int] = {}
        self._regions: Counter[tuple[int, int]] = Counter()
        #: Number of messages that have ended.
        self.change = 0

    def __len__(self) -> int:
        """Return the number of messages that have not ended."""
        return len(self._wheel) + len(self._taken)

    def add(self, due: Due) -> None:
        """Add a waiting message."""
        self._wheel.add(due.due_ms, due.place.number)
        self._regions[due.place.queue, due.place.offset // _REGION] += 1

    def turn(self, now_ms: int) -> bool:
        """Prepare ``take``; return whether to call this again first."""
        return self._wheel.turn(now_ms)

    def take(self, now_ms: int, limit: int) -> list[Due]:
        """Take up to *limit* due messages, the earliest first. End them or put them back."""
        taken = [
            Due(due_ms, DelayedPlace.from_number(number))
            for due_ms, number in self._wheel.take(now_ms, limit)
        ]
        self._taken.update((place, due_ms) for due_ms, place in taken)
        return taken

    def put_back(self, taken: Iterable[Due]) -> None:
        """Return messages that could not be ended now, before others of their times."""
        again: dict[int, list[int]] = {}
        for due_ms, place in taken:
            del self._taken[place]
            again.setdefault(due_ms, []).append(place.number)
        for due_ms, numbers in again.items():
            self._wheel.add_first(due_ms, numbers)

    def postpone(self, taken: Iterable[Due], until_ms: int) -> None:
        """Return messages that could not be ended now, with a later due time, after others."""
        for _, place in taken:
            del self._taken[place]
            self._wheel.add(until_ms, place.number)

    def take_one(self, due: Due) -> bool:
        """Take a message before its time; return False if it does not wait any more."""
        if not self._wheel.remove(due.due_ms, due.place.number):
            return False
        self._taken[due.place] = due.due_ms
        return True

    def take_those(self, dues: Sequence[Due]) -> list[Due]:
        """Take those of *dues* that still wait, before their time."""
        wanted = [(due.due_ms, due.place.number) for due in dues]
        removed = set(self._wheel.remove_all(wanted))
        taken = [due for due, one in zip(dues, wanted, strict=True) if one in removed]
        self._taken.update((place, due_ms) for due_ms, place in taken)
        return taken

    def end(self, taken: Iterable[Due]) -> None:
        """Remove messages whose end is in the log."""
        for _, place in taken:
            del self._taken[place]
            self.change += 1
            region = (place.queue, place.offset // _REGION)
            self._regions[region] -= 1
            if not self._regions[region]:
                del self._regions[region]

    def next_ms(self) -> int | None:
        """Return the time of the next work; None if there is none."""
        return self._wheel.next_ms()

    def lowest_offsets(self) -> dict[int, int]:
        """Return by queue an offset below which nothing waits, at most 4096 too low."""
        lowest: dict[int, int] = {}
        for queue, region in self._regions:
            offset = region * _REGION
            lowest[queue] = min(offset, lowest.get(queue, offset))
        return lowest

    def due_at(self, due_ms: int) -> list[DelayedPlace]:
        """Return the messages of one millisecond, without taken ones."""
        return [DelayedPlace.from_number(number) for number in self._wheel.numbers_at(due_ms)]

    def below(self, ends: Mapping[int, int]) -> Iterator[list[Due]]:
        """Yield messages before the offset that *ends* has for their queue, in portions.

        Taken ones are omitted. Scans all waiting messages, unless none can be so old.
        """
        lowest = self.lowest_offsets()
        if all(offset >= ends.get(queue, 0) for queue, offset in lowest.items()):
            return
        limits = {queue: DelayedPlace(queue, end).number for queue, end in ends.items()}
        queues = DelayedPlace.queue_of
        for portion in self._wheel.portions():
            yield [
                Due(due_ms, DelayedPlace.from_number(number))
                for due_ms, number in portion
                if number < limits.get(queues(number), 0)
            ]
