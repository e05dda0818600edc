"""A consumer's record of its handlings, and the order and speed computed from it.

A record is a file of 24 bytes per handling, big-endian: the number of the key and that of the
message in its key (4 bytes each), start and end in ns by one clock. Consumers in all languages are
judged by it in the same way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

_HANDLING = struct.Struct(">iiqq")

#: Key, start, number of the message in its key, end; sorts by key and start.
Handling = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of one run.

    *early*: messages that started before an earlier message of their key; *again*: repeated
    messages; *overlapping*: messages that started before the previous one of their key had ended.
    """

    handled: int
    distinct: int
    early: int
    again: int
    overlapping: int

    @property
    def faults(self) -> int:
        """The number of all violations of the order of keys."""
        return self.early + self.again + self.overlapping


def read(path: Path) -> list[Handling]:
    """Return a record, sorted by keys and starts."""
    found = [
        (key, begin, number, end)
        for key, number, begin, end in _HANDLING.iter_unpack(path.read_bytes())
    ]
    found.sort()
    return found


def judge(handlings: Sequence[Handling]) -> Judgement:
    """Judge whether each key's messages were handled one after the other, in order from number 0.

    *handlings*: as ``read`` returns them.
    """
    distinct = early = again = overlapping = 0
    for _, of_key in groupby(handlings, key=itemgetter(0)):
        seen: set[int] = set()
        next_number = last_end = 0
        for _, begin, number, end in of_key:
            if number in seen:
                again += 1
            elif number != next_number:
                early += 1
            seen.add(number)
            while next_number in seen:
                next_number += 1
            overlapping += begin < last_end
            last_end = max(last_end, end)
        distinct += len(seen)
    return Judgement(len(handlings), distinct, early, again, overlapping)


def per_second(handlings: Sequence[Handling]) -> float:
    """Return messages per second from the first start to the last end."""
    first = min(begin for _, begin, _, _ in handlings)
    last = max(end for *_, end in handlings)
    return len(handlings) / max(last - first, 1) * 1e9


def per_second_between(handlings: Sequence[Handling], first: float, last: float) -> float:
    """Return the same between two fractions of the messages: without start and tail."""
    ends = sorted(end for *_, end in handlings)
    begun, ended = int(len(ends) * first), int(len(ends) * last) - 1
    return (ended - begun) / max(ends[ended] - ends[begun], 1) * 1e9
