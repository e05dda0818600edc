"""Which offsets of a queue are unfinished, and what may be committed. Pure.

Only unfinished offsets are held; "finished" is the complement. Gaps are normal (a tag filter at
the broker makes them), so the range between two offsets is never synthesised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

What = TypeVar("What")


@dataclass(slots=True)
class OffsetTracker(Generic[What]):
    """Offsets are message counts in one queue; ``position`` is the next one to read. *What* is what
    its caller wants to find at the oldest.
    """

    position: int
    # Rising, for a dict keeps the order in which they were read; its room is used again.
    _unfinished: dict[int, What | None] = field(default_factory=dict)
    # Of those below the position at the last look: which have finished since.
    _looked_at: int = 0
    _finished: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._unfinished)

    def __contains__(self, offset: int) -> bool:
        return offset in self._unfinished

    @property
    def committable(self) -> int:
        """The lowest unfinished offset, or the read position if everything read is finished.

        O(offsets finished since the dict was last compacted), at most as many as it has room for.
        """
        return next(iter(self._unfinished), self.position)

    @property
    def oldest(self) -> What | None:
        """What was started at the lowest unfinished offset; None without any. O as above."""
        return next(iter(self._unfinished.values()), None)

    def start(self, offset: int, what: What | None = None) -> None:
        """A message was read and is now unfinished; *what* is kept of it. Raises ValueError if it
        was read before.
        """
        if offset < self.position:
            raise ValueError(
                f"offset {offset} was read before: the read position is {self.position}"
            )
        self.position = offset + 1
        self._unfinished[offset] = what

    def advance(self, next_offset: int) -> None:
        """Everything below *next_offset* was read, or will never come (filtered at the broker)."""
        if next_offset > self.position:
            self.position = next_offset

    def finish(self, offset: int) -> None:
        """The message is finished. Raises KeyError if it is not unfinished."""
        del self._unfinished[offset]
        if offset < self._looked_at:
            self._finished.append(offset)

    def started(self) -> list[What]:
        """What is kept of all unfinished offsets, rising."""
        return [what for what in self._unfinished.values() if what is not None]

    def unfinished(self) -> list[int]:
        """All unfinished offsets, rising."""
        return list(self._unfinished)

    def changes(self) -> tuple[list[int], list[int]]:
        """Rising offsets of what has finished since the last look and was there then, and of what
        is unfinished and was not. O(changes): what came and finished since counts as one.
        """
        started = []
        for offset in reversed(self._unfinished):
            if offset < self._looked_at:
                break
            started.append(offset)
        finished, self._finished = self._finished, []
        self._looked_at = self.position
        return sorted(finished), started[::-1]
