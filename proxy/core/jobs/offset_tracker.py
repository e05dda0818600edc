"""Unfinished offsets of a queue, and the offset that may be committed. Pure.

Only unfinished offsets are stored; "finished" is the complement. Gaps are normal (the broker's tag
filter makes them), so ranges between offsets are never synthesised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

What = TypeVar("What")


@dataclass(slots=True)
class OffsetTracker(Generic[What]):
    """Offsets are message counts in one queue; ``position`` is the next one to read. *What* is the
    item that the caller keeps for each unfinished offset.
    """

    position: int
    # Rising, because a dict keeps insertion order; its space is reused.
    _unfinished: dict[int, What | None] = field(default_factory=dict)
    # Offsets below the position at the last call of ``changes`` that have finished since.
    _looked_at: int = 0
    _finished: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._unfinished)

    def __contains__(self, offset: int) -> bool:
        return offset in self._unfinished

    @property
    def committable(self) -> int:
        """Lowest unfinished offset, or the read position if everything read is finished.

        O(offsets finished since the dict was last compacted), bounded by its capacity.
        """
        return next(iter(self._unfinished), self.position)

    @property
    def oldest(self) -> What | None:
        """Item of the lowest unfinished offset; None without any. Complexity as above."""
        return next(iter(self._unfinished.values()), None)

    def start(self, offset: int, what: What | None = None) -> None:
        """Add an unfinished offset with its item *what*. Raise ValueError if it was read before."""
        if offset < self.position:
            raise ValueError(
                f"offset {offset} was read before: the read position is {self.position}"
            )
        self.position = offset + 1
        self._unfinished[offset] = what

    def start_all(self, offsets: Sequence[int], items: Iterable[What | None]) -> None:
        """Do as ``start`` for each of *offsets*, which rise; there is at least one."""
        self.start(offsets[0])
        self.position = offsets[-1] + 1
        self._unfinished.update(zip(offsets, items, strict=True))

    def advance(self, next_offset: int) -> None:
        """Move the position to *next_offset*: all below was read, or filtered at the broker."""
        if next_offset > self.position:
            self.position = next_offset

    def finish(self, offset: int) -> None:
        """Remove a finished offset. Raise KeyError if it is not unfinished."""
        self.finish_all((offset,))

    def finish_all(self, offsets: Iterable[int]) -> None:
        """Do as ``finish`` for each of *offsets*."""
        unfinished, looked_at = self._unfinished, self._looked_at
        for offset in offsets:
            del unfinished[offset]
            if offset < looked_at:
                self._finished.append(offset)

    def drop_items(self) -> None:
        """Drop all items; their offsets stay unfinished."""
        self._unfinished = dict.fromkeys(self._unfinished)

    def started(self) -> list[What]:
        """Return the items of all unfinished offsets, rising."""
        return [what for what in self._unfinished.values() if what is not None]

    def unfinished(self) -> list[int]:
        """Return all unfinished offsets, rising."""
        return list(self._unfinished)

    def changes(self) -> tuple[list[int], list[int]]:
        """Return the rising offsets that finished since the last call, and those added since and
        still unfinished. O(changes): an offset that came and finished in between counts as one.
        """
        started = []
        for offset in reversed(self._unfinished):
            if offset < self._looked_at:
                break
            started.append(offset)
        finished, self._finished = self._finished, []
        self._looked_at = self.position
        return sorted(finished), started[::-1]
