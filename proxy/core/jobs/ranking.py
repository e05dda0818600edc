"""Keys ordered by a number, such as a due time or a first offset. Pure.

Unlike in a heap, any key can be removed at once, in O(log n), without stale entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedList

Key = TypeVar("Key", int, bytes)


class Ranking(Generic[Key]):
    """A number for each key; ties are ordered by key."""

    __slots__ = ("_sorted", "numbers")

    def __init__(self) -> None:
        #: Numbers by key, unordered; a live, read-only view.
        self.numbers: dict[Key, int] = {}
        self._sorted: SortedList[tuple[int, Key]] = SortedList()

    def set(self, key: Key, number: int) -> None:
        """Set the number of *key*, replacing any former one."""
        known = self.numbers.get(key)
        if known != number:
            if known is not None:
                self._sorted.remove((known, key))
            self.numbers[key] = number
            self._sorted.add((number, key))

    def remove(self, key: Key) -> int | None:
        """Remove *key*; return its number, None if it had none."""
        number = self.numbers.pop(key, None)
        if number is not None:
            self._sorted.remove((number, key))
        return number

    @property
    def first(self) -> tuple[int, Key] | None:
        """Lowest number with its key; None without any. O(1)."""
        return self._sorted[0] if self.numbers else None

    @property
    def lowest(self) -> int:
        """Lowest number. Raises IndexError without any."""
        return self._sorted[0][0]

    @property
    def last(self) -> int | None:
        """Highest number; None without any. O(1)."""
        return self._sorted[-1][0] if self.numbers else None

    def up_to(self, number: int) -> Iterator[tuple[int, Key]]:
        """Remove and yield all entries up to *number*, the lowest first."""
        while self.numbers and self._sorted[0][0] <= number:
            found: tuple[int, Key] = self._sorted.pop(0)
            del self.numbers[found[1]]
            yield found

    def clear(self) -> None:
        """Remove all entries."""
        self.numbers.clear()
        self._sorted.clear()
