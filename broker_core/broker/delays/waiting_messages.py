"""Which delayed messages still wait, and until when. Pure.

What waits follows from the log alone, see ``store/delay_index.py``; this is its form in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker_core.broker.delays.timing_wheel import TimingWheel
from broker_core.names import DelayedPlace

_REGION = 4096  # messages of a queue that are counted together


class Due(NamedTuple):
    """A message that waits, and the time it does not come before (ms since 1970)."""

    due_ms: int
    place: DelayedPlace


class WaitingMessages:
    """Those of one broker, about 16 bytes each. Not for several threads."""

    def __init__(self) -> None:
        self._wheel = TimingWheel()
        self._taken: dict[DelayedPlace, int] = {}
        self._regions: Counter[tuple[int, int]] = Counter()
        #: Counts those that ended.
        self.change = 0

    def __len__(self) -> int:
        """How many have not ended."""
        return len(self._wheel) + len(self._taken)

    def add(self, due: Due) -> None:
        """Have a message wait."""
        self._wheel.add(due.due_ms, due.place.number)
        self._regions[due.place.queue, due.place.offset // _REGION] += 1

    def turn(self, now_ms: int) -> bool:
        """Prepare ``take``; True if it is to be called again."""
        return self._wheel.turn(now_ms)

    def take(self, now_ms: int, limit: int) -> list[Due]:
        """Up to *limit* messages that are due, the earliest first. To be ended or put back."""
        taken = [
            Due(due_ms, DelayedPlace.from_number(number))
            for due_ms, number in self._wheel.take(now_ms, limit)
        ]
        self._taken.update((place, due_ms) for due_ms, place in taken)
        return taken

    def put_back(self, taken: Iterable[Due]) -> None:
        """They could not be ended now, and wait again, before others of their times."""
        again: dict[int, list[int]] = {}
        for due_ms, place in taken:
            del self._taken[place]
            again.setdefault(due_ms, []).append(place.number)
        for due_ms, numbers in again.items():
            self._wheel.add_first(due_ms, numbers)

    def postpone(self, taken: Iterable[Due], until_ms: int) -> None:
        """They could not be ended now, and wait until then: others of their times go first."""
        for _, place in taken:
            del self._taken[place]
            self._wheel.add(until_ms, place.number)

    def take_one(self, due: Due) -> bool:
        """Take a message before its time; False if it does not wait any more."""
        if not self._wheel.remove(due.due_ms, due.place.number):
            return False
        self._taken[due.place] = due.due_ms
        return True

    def take_those(self, dues: Sequence[Due]) -> list[Due]:
        """As ``take_one``, many: those of *dues* that wait still."""
        wanted = [(due.due_ms, due.place.number) for due in dues]
        removed = set(self._wheel.remove_all(wanted))
        taken = [due for due, one in zip(dues, wanted, strict=True) if one in removed]
        self._taken.update((place, due_ms) for due_ms, place in taken)
        return taken

    def end(self, taken: Iterable[Due]) -> None:
        """These do not wait any more: that is in the log."""
        for _, place in taken:
            del self._taken[place]
            self.change += 1
            region = (place.queue, place.offset // _REGION)
            self._regions[region] -= 1
            if not self._regions[region]:
                del self._regions[region]

    def next_ms(self) -> int | None:
        """When something is to be done next; None if nothing waits."""
        return self._wheel.next_ms()

    def lowest_offsets(self) -> dict[int, int]:
        """By queue an offset below which nothing waits, at most 4096 too low."""
        lowest: dict[int, int] = {}
        for queue, region in self._regions:
            offset = region * _REGION
            lowest[queue] = min(offset, lowest.get(queue, offset))
        return lowest

    def due_at(self, due_ms: int) -> list[DelayedPlace]:
        """Those of one millisecond; not what is taken."""
        return [DelayedPlace.from_number(number) for number in self._wheel.numbers_at(due_ms)]

    def below(self, ends: Mapping[int, int]) -> Iterator[list[Due]]:
        """Those before the offset that *ends* has for their queue, some at a time; none of what is
        taken. Looks at all that wait, unless none can be so old.
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
