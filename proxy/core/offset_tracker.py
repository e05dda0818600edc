"""Which offsets of a queue are unfinished, and what may be committed. Pure; O(1) amortised.

Only unfinished offsets are held; "finished" is the complement. Gaps are normal (a tag filter at
the broker makes them), so the range between two offsets is never synthesised.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: Finished offsets that may wait behind an unfinished one, beside as many as are unfinished.
_SLACK = 1024


@dataclass(slots=True)
class OffsetTracker:
    """Offsets are message counts in one queue; ``position`` is the next one to read."""

    position: int
    _unfinished: set[int] = field(default_factory=set)
    _order: deque[int] = field(default_factory=deque)  # rising; finished ones leave at the head

    def __len__(self) -> int:
        return len(self._unfinished)

    def __contains__(self, offset: int) -> bool:
        return offset in self._unfinished

    @property
    def committable(self) -> int:
        """The lowest unfinished offset, or the read position if everything read is finished."""
        while self._order and self._order[0] not in self._unfinished:
            self._order.popleft()
        return self._order[0] if self._order else self.position

    def start(self, offset: int) -> None:
        """A message was read and is now unfinished. Raises ValueError if it was read before."""
        if offset < self.position:
            raise ValueError(
                f"offset {offset} was read before: the read position is {self.position}"
            )
        self.position = offset + 1
        self._unfinished.add(offset)
        self._order.append(offset)
        if len(self._order) > 2 * len(self._unfinished) + _SLACK:  # the lowest one is stuck
            self._order = deque(each for each in self._order if each in self._unfinished)

    def advance(self, next_offset: int) -> None:
        """Everything below *next_offset* was read, or will never come (filtered at the broker)."""
        self.position = max(self.position, next_offset)

    def finish(self, offset: int) -> None:
        """The message is finished. Raises KeyError if it is not unfinished."""
        self._unfinished.remove(offset)

    def unfinished(self) -> list[int]:
        """All unfinished offsets, rising. O(n log n)."""
        return sorted(self._unfinished)
