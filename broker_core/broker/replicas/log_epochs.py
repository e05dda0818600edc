"""The epochs of a log: where the data of each elected master begins. Pure.

An elected master notes its epoch before it appends anything, and its first message fills the epoch:
only then are older messages confirmed as well. A slave takes over the whole list of the master
whose log it continues; an epoch counts once the slave's log has data of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from broker_core.errors import InvalidCommand

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class LogEpochs:
    """Pairs of an epoch and the offset at which its data begins; both ascend."""

    begins: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_table(cls, content: Mapping[str, Any]) -> LogEpochs:
        """Read the table; raise ValueError on other content."""
        return cls(_checked(content.get("epochs", [])))

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> LogEpochs:
        """Read the list that a master sends. Raise InvalidCommand."""
        try:
            return cls(_checked(orjson.loads(data)))
        except ValueError as error:
            raise InvalidCommand(f"the epochs of the master's log: {error}") from error

    def to_table(self) -> dict[str, list[list[int]]]:
        """Inverse of ``from_table``."""
        return {"epochs": [list(each) for each in self.begins]}

    def to_json(self) -> bytes:
        """Inverse of ``from_json``."""
        return orjson.dumps(self.begins)

    def last_before(self, end: int) -> int:
        """Return the epoch of the last data of a log that ends at *end*; 0 if it has none."""
        count = bisect_left(self.begins, end, key=lambda each: each[1])
        return self.begins[count - 1][0] if count else 0

    def begun(self, epoch: int, *, end: int, first: int) -> LogEpochs:
        """Return the list of a master of *epoch* whose log begins at *first* and ends at *end*.

        Epochs whose data was deleted by retention are omitted, except the last one of them.
        """
        kept = [each for each in self.begins if each[1] < end]
        while len(kept) > 1 and kept[1][1] <= first:
            del kept[0]
        return LogEpochs((*kept, (epoch, end)))


def _checked(items: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(items, list) or len(items) > _MOST:
        raise ValueError(f"expected a list of at most {_MOST} pairs of epoch and offset")
    begins = tuple(_pair(item) for item in items)
    if any(not _ascends(*two) for two in pairwise(begins)):
        raise ValueError("epochs and offsets have to ascend")
    return begins


def _pair(item: object) -> tuple[int, int]:
    if isinstance(item, Iterable):
        match tuple(item):
            case (int(epoch), int(offset)) if epoch >= 0 and offset >= 0:
                return epoch, offset
    raise ValueError(f"{str(item)[:80]} is no pair of epoch and offset")


def _ascends(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[0] and one[1] < other[1]
