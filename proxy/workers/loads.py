"""Which worker gets the next connection, and which has too many: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LOOKS = 3


@dataclass(slots=True)
class Load:
    """What the supervisor knows of one worker's clients."""

    listening: bool = False
    """False before it is ready, once it drains, and while a person has drained it."""
    open: int = 0
    """Connections to its Thrift side that came through a door, as it said last."""
    movable: int = 0
    """Those of them whose clients may go on at another worker."""
    taken: int = 0
    """Connections that it took so far, of those handed to it, as it said last."""
    handed: int = 0

    def reported(self, *, listening: bool, connections: int, movable: int, taken: int) -> None:
        """The worker said so of itself."""
        self.listening, self.taken = listening, taken
        self.open, self.movable = connections, movable

    def hand(self) -> None:
        """A connection was handed to it."""
        self.handed += 1

    @property
    def under_way(self) -> int:
        """Connections that it has not taken yet; they stay so if it stands still."""
        return self.handed - self.taken


def in_turn(loads: Mapping[int, Load]) -> list[int]:
    """The workers that may get a connection, the best first.

    Those that have taken all they were given come before others, so that a worker that stands still
    gets one connection and no more while another lives; then fewest connections; then the one that
    was given fewest so far, or connections that come and go would all be the first worker's.
    """
    able = [(number, load) for number, load in loads.items() if load.listening]
    able.sort(key=lambda each: _burden(each[1]))
    return [number for number, _ in able]


@dataclass(slots=True)
class Evenness:
    """Whether clients are to move: those of a worker that ended are with the others, and the one in
    its place would have none for as long as no client is new.
    """

    looks: int = 0  # in a row that found too many at the same worker
    number: int = 0

    def look(self, loads: Mapping[int, Load]) -> tuple[int, int] | None:
        """The worker that should let clients go, and how many. Caller: once a second.

        It takes three looks: clients that come or go at the same time are no reason. And what would
        come back is not moved: the door looks at all connections, of which some stay.
        """
        able = {number: load for number, load in loads.items() if load.listening}
        number = max(able, key=lambda each: able[each].movable, default=0)
        count = 0
        if len(able) > 1:
            most, least = able[number], able[in_turn(able)[0]]
            count = min(most.movable - least.movable, most.open - least.open) // 2
        if count < 1 or number != self.number:
            self.number, self.looks = number, 0
        self.looks += count >= 1
        if self.looks < _LOOKS:
            return None
        self.looks = 0
        return number, count


def _burden(load: Load) -> tuple[bool, int, int]:
    return bool(load.under_way), load.open + load.under_way, load.handed
