"""A timing wheel: numbers ordered by due time, a million of them in 16 MB. Pure.

Four wheels, each 128 times as fine as the one before: buckets of 35 minutes, 16 seconds, 128 ms and
1 ms. A number waits in a bucket of the coarsest wheel; a bucket is spread over the next wheel when
its time approaches. Each number is thus touched four times, independently of all others; nothing is
sorted, and numbers due in the same millisecond keep the order in which they were added.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

_SHIFTS = (0, 7, 14, 21)  # of a time in ms; the rest is the bucket's number
_TOP = len(_SHIFTS) - 1
_SPREAD_AT_ONCE = 20_000
_GIVEN_AT_ONCE = 20_000
_GONE = -1


class TimingWheel:
    """Times are milliseconds; numbers are 0 or more. Not thread-safe."""

    def __init__(self) -> None:
        self._count = 0
        # Buckets alternate time and number; those of the finest wheel contain numbers only.
        self._buckets: list[dict[int, array[int]]] = [{} for _ in _SHIFTS]
        self._order: list[list[int]] = [[] for _ in _SHIFTS]  # heaps of bucket numbers
        self._opened = [0 for _ in _SHIFTS]  # buckets below this one have been spread

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, number: int) -> None:
        """Add *number*, due at *due_ms*, after others of that time."""
        self._count += 1
        self._put(_TOP, due_ms, number)

    def add_first(self, due_ms: int, numbers: list[int]) -> None:
        """Add *numbers*, which were taken, again before others of that time."""
        self._count += len(numbers)
        later = self._buckets[0].get(due_ms)
        if later is None:
            heappush(self._order[0], due_ms)
        self._buckets[0][due_ms] = array("q", numbers) + (later or array("q"))

    def turn(self, now_ms: int) -> bool:
        """Spread buckets that are due soon; return whether more are left (at most 10 ms per
        call).
        """
        left = _SPREAD_AT_ONCE
        for level in range(_TOP, 0, -1):
            shift = _SHIFTS[level]
            soon = (now_ms + (1 << shift)) >> shift
            order = self._order[level]
            while order and order[0] <= soon:
                left = self._spread(level, left)
                if left <= 0:
                    return True
            self._opened[level] = max(self._opened[level], soon + 1)
        return False

    def take(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """Remove and return up to *limit* (time, number) that are due, the earliest first."""
        taken: list[tuple[int, int]] = []
        order, buckets = self._order[0], self._buckets[0]
        while order and order[0] <= now_ms and len(taken) < limit:
            due_ms = order[0]
            numbers = buckets[due_ms]
            some = numbers[: limit - len(taken)]
            taken += [(due_ms, number) for number in some if number != _GONE]
            if len(some) == len(numbers):
                heappop(order)
                del buckets[due_ms]
            else:
                del numbers[: len(some)]
        self._count -= len(taken)
        return taken

    def remove(self, due_ms: int, number: int) -> bool:
        """Remove *number*, which was added for *due_ms*; return False if it is not there."""
        for level in range(_TOP, -1, -1):
            bucket = self._buckets[level].get(due_ms >> _SHIFTS[level])
            if bucket is None:
                continue
            at = _find(bucket, due_ms, number, pairs=level > 0)
            if at is not None:
                bucket[at] = _GONE
                self._count -= 1
                return True
        return False

    def remove_all(self, those: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Remove all (time, number) of *those* that wait, and return them in no order.

        Scans each bucket once, in about 0.1 µs a number; ``remove`` scans once for each number.
        """
        left = {number: due_ms for due_ms, number in those}
        removed: list[tuple[int, int]] = []
        for level in range(_TOP, -1, -1):
            for name in {due_ms >> _SHIFTS[level] for due_ms in left.values()}:
                if (bucket := self._buckets[level].get(name)) is not None:
                    removed += _remove(bucket, left, None if level else name)
        self._count -= len(removed)
        return removed

    def numbers_at(self, due_ms: int) -> list[int]:
        """Return the numbers added for *due_ms*, in no order."""
        found = [number for number in self._buckets[0].get(due_ms, ()) if number != _GONE]
        for level in range(1, _TOP + 1):
            bucket = self._buckets[level].get(due_ms >> _SHIFTS[level], array("q"))
            for at in range(0, len(bucket), 2):
                if bucket[at] == due_ms and bucket[at + 1] != _GONE:
                    found.append(bucket[at + 1])
        return found

    def next_ms(self) -> int | None:
        """Return the time of the next ``turn`` or due number; None if there is none."""
        times = []
        for shift, order in zip(_SHIFTS, self._order, strict=True):
            if order:
                start = order[0] << shift
                times.append(start if shift == 0 else max(0, start - (1 << shift)))
        return min(times, default=None)

    def portions(self) -> Iterator[list[tuple[int, int]]]:
        """Yield all (time, number) that wait at the time of the call, in portions, in no order.

        Between two portions anything may change: numbers returned may have been taken meanwhile.
        """
        singles = [(due_ms, numbers[:]) for due_ms, numbers in self._buckets[0].items()]
        coarse = [bucket[:] for buckets in self._buckets[1:] for bucket in buckets.values()]

        def given() -> Iterator[list[tuple[int, int]]]:
            for due_ms, numbers in singles:
                yield [(due_ms, number) for number in numbers if number != _GONE]
            for bucket in coarse:
                for at in range(0, len(bucket), 2 * _GIVEN_AT_ONCE):
                    some = bucket[at : at + 2 * _GIVEN_AT_ONCE]
                    pairs = zip(some[0::2], some[1::2], strict=True)
                    yield [pair for pair in pairs if pair[1] != _GONE]

        return given()

    def _put(self, level: int, due_ms: int, number: int) -> None:
        while level > 0 and due_ms >> _SHIFTS[level] < self._opened[level]:
            level -= 1
        name = due_ms >> _SHIFTS[level]
        bucket = self._buckets[level].get(name)
        if bucket is None:
            bucket = self._buckets[level][name] = array("q")
            heappush(self._order[level], name)
        if level > 0:
            bucket.append(due_ms)
        bucket.append(number)

    def _spread(self, level: int, left: int) -> int:
        """Spread the first bucket, or *left* numbers of it; return how many are left to do."""
        name = self._order[level][0]
        bucket = self._buckets[level][name]
        pairs = bucket[: 2 * left]
        for at in range(0, len(pairs), 2):
            if pairs[at + 1] != _GONE:
                self._put(level - 1, pairs[at], pairs[at + 1])
        if len(pairs) == len(bucket):
            heappop(self._order[level])
            del self._buckets[level][name]
        else:
            del bucket[: len(pairs)]
        return left - len(pairs) // 2 - 1


def _remove(
    bucket: array[int], left: dict[int, int], due_ms: int | None
) -> Iterator[tuple[int, int]]:
    """Remove the numbers of *left*, which maps them to their times, from *bucket* and from *left*.

    *due_ms* is the time of all in it; None: each number follows its own time.
    """
    pairs = due_ms is None
    for at in range(pairs, len(bucket), 1 + pairs):
        number = bucket[at]
        of_ms = bucket[at - 1] if due_ms is None else due_ms
        if left.get(number) == of_ms:
            bucket[at] = _GONE
            del left[number]
            yield of_ms, number


def _find(bucket: array[int], due_ms: int, number: int, *, pairs: bool) -> int | None:
    at = -1
    while True:
        try:
            at = bucket.index(number, at + 1)
        except ValueError:
            return None
        # A time may equal the number that is searched.
        if not pairs or (at % 2 == 1 and bucket[at - 1] == due_ms):
            return at
