"""Selects the worker for the next connection, and workers with too many connections. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LOOKS = 3


@dataclass(slots=True)
class Load:
    """The supervisor's view of one worker's connections."""

    listening: bool = False
    """False before it is ready, while it drains, and while an operator has drained it."""
    open: int = 0
    """Open Thrift connections passed by the supervisor, by its last report."""
    movable: int = 0
    """Number of these whose clients may continue at another worker."""
    taken: int = 0
    """Passed connections that it has accepted so far, by its last report."""
    handed: int = 0

    def reported(self, *, listening: bool, connections: int, movable: int, taken: int) -> None:
        """Update from a report of the worker."""
        self.listening, self.taken = listening, taken
        self.open, self.movable = connections, movable

    def hand(self) -> None:
        """Count a connection passed to the worker."""
        self.handed += 1

    @property
    def under_way(self) -> int:
        """Passed connections that it has not accepted yet; a stalled worker leaves them so."""
        return self.handed - self.taken


def by_preference(loads: Mapping[int, Load]) -> list[int]:
    """Return the workers that may get a connection, best first.

    Workers that have accepted all passed connections come first, so that a stalled worker gets only
    one; then those with the fewest connections; then those that were passed the fewest so far, or
    short-lived connections would all go to the first worker.
    """
    able = [(number, load) for number, load in loads.items() if load.listening]
    able.sort(key=lambda each: _burden(each[1]))
    return [number for number, _ in able]


@dataclass(slots=True)
class Rebalancer:
    """Decides whether clients move. After a restart, a worker would otherwise have no clients until
    new ones connect.
    """

    looks: int = 0  # consecutive checks that found the same worker overloaded
    number: int = 0

    def look(self, loads: Mapping[int, Load]) -> tuple[int, int] | None:
        """Return the worker that should release clients, and how many. Call it once a second.

        Three checks must agree, so that concurrent connects and disconnects have no effect. Clients
        that would return are not moved: not all connections are movable.
        """
        able = {number: load for number, load in loads.items() if load.listening}
        number = max(able, key=lambda each: able[each].movable, default=0)
        count = 0
        if len(able) > 1:
            most, least = able[number], able[by_preference(able)[0]]
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
