"""Keys in the order of their numbers: times that come due, first offsets. Pure.

Where keys leave before their turn a heap keeps what is gone, and has to be searched or made anew;
here any key leaves at once, in O(log n).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedList

Key = TypeVar("Key", int, bytes)


class Ranking(Generic[Key]):
    """A number for each key; of equal numbers the lower key comes first."""

    __slots__ = ("_sorted", "numbers")

    def __init__(self) -> None:
        #: By key, as they are at any time, in no order. Others only look at it.
        self.numbers: dict[Key, int] = {}
        self._sorted: SortedList[tuple[int, Key]] = SortedList()

    def set(self, key: Key, number: int) -> None:
        """Give *key* that number, whatever it had."""
        known = self.numbers.get(key)
        if known != number:
            if known is not None:
                self._sorted.remove((known, key))
            self.numbers[key] = number
            self._sorted.add((number, key))

    def remove(self, key: Key) -> int | None:
        """Take *key* out; returns its number, None if it had none."""
        number = self.numbers.pop(key, None)
        if number is not None:
            self._sorted.remove((number, key))
        return number

    @property
    def first(self) -> tuple[int, Key] | None:
        """The lowest number, and whose it is; None without any. O(1)."""
        return self._sorted[0] if self.numbers else None

    @property
    def lowest(self) -> int:
        """That number. Raises IndexError without any."""
        return self._sorted[0][0]

    @property
    def last(self) -> int | None:
        """The highest number; None without any. O(1)."""
        return self._sorted[-1][0] if self.numbers else None

    def up_to(self, number: int) -> Iterator[tuple[int, Key]]:
        """Take out, and give, all with no higher *number*, the lowest first."""
        while self.numbers and self._sorted[0][0] <= number:
            found: tuple[int, Key] = self._sorted.pop(0)
            del self.numbers[found[1]]
            yield found

    def clear(self) -> None:
        """Take all out."""
        self.numbers.clear()
        self._sorted.clear()
