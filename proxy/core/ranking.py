"""Keys in the order of their numbers: times that come due, first offsets. Pure.

Where keys leave before their turn a heap keeps what is gone, and has to be searched or made anew;
here any key leaves at once. All but ``items`` costs O(log n).
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedList

Key = TypeVar("Key", int, bytes)


class Ranking(Generic[Key]):
    """A number for each key; of equal numbers the lower key comes first."""

    __slots__ = ("_numbers", "_sorted")

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._sorted: SortedList[tuple[int, Key]] = SortedList()

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def set(self, key: Key, number: int) -> None:
        """Give *key* that number, whatever it had."""
        known = self._numbers.get(key)
        if known != number:
            if known is not None:
                self._sorted.remove((known, key))
            self._numbers[key] = number
            self._sorted.add((number, key))

    def get(self, key: Key) -> int | None:
        """The number of *key*; None without one. O(1)."""
        return self._numbers.get(key)

    def remove(self, key: Key) -> int | None:
        """Take *key* out; returns its number, None if it had none."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._sorted.remove((number, key))
        return number

    @property
    def first(self) -> tuple[int, Key] | None:
        """The lowest number, and whose it is; None without any. O(1)."""
        return self._sorted[0] if self._numbers else None

    @property
    def last(self) -> int | None:
        """The highest number; None without any. O(1)."""
        return self._sorted[-1][0] if self._numbers else None

    def up_to(self, number: int) -> Iterator[tuple[int, Key]]:
        """Take out, and give, all with no higher *number*, the lowest first."""
        while self._numbers and self._sorted[0][0] <= number:
            found: tuple[int, Key] = self._sorted.pop(0)
            del self._numbers[found[1]]
            yield found

    def items(self) -> ItemsView[Key, int]:
        """Keys with their numbers, in no order."""
        return self._numbers.items()

    def clear(self) -> None:
        """Take all out."""
        self._numbers.clear()
        self._sorted.clear()
