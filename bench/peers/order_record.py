"""What a consumer noted of each message it handled, and what that says of order and speed.

A record is a file of 24 bytes a handling, the greatest byte first: the number of the key and that
of the message in its key (4 bytes each), begin and end in ns by one clock. All consumers are judged
by it in the same way, whatever they are written in.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

_HANDLING = struct.Struct(">iiqq")

#: Key, when it began, which message of the key, when it ended. So they sort as they began.
Handling = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one run. *early*: messages that began before one of their key that was sent before them
    had; *again*: those that came a second time; *overlapping*: those that began before the one
    before them of their key had ended.
    """

    handled: int
    distinct: int
    early: int
    again: int
    overlapping: int

    @property
    def faults(self) -> int:
        """All that must not be where keys are in order."""
        return self.early + self.again + self.overlapping


def read(path: Path) -> list[Handling]:
    """A record, sorted by keys and begins."""
    found = [
        (key, begin, number, end)
        for key, number, begin, end in _HANDLING.iter_unpack(path.read_bytes())
    ]
    found.sort()
    return found


def judge(handlings: Sequence[Handling]) -> Judgement:
    """Whether each key's messages came one after the other, as they were sent, from number 0 on.
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
    """Messages a second from the first begin to the last end."""
    first = min(begin for _, begin, _, _ in handlings)
    last = max(end for *_, end in handlings)
    return len(handlings) / max(last - first, 1) * 1e9


def per_second_between(handlings: Sequence[Handling], first: float, last: float) -> float:
    """The same between the ends of so large parts of the messages: without start and tail."""
    ends = sorted(end for *_, end in handlings)
    begun, ended = int(len(ends) * first), int(len(ends) * last) - 1
    return (ended - begun) / max(ends[ended] - ends[begun], 1) * 1e9
