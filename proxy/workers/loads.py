"""Which worker gets the next connection: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Load:
    """What the supervisor knows of one worker's clients."""

    listening: bool = False
    """False before it is ready, once it drains, and while a person has drained it."""
    open: int = 0
    """Connections to its Thrift side that came through a door, as it said last."""
    taken: int = 0
    """Connections that it took so far, of those handed to it, as it said last."""
    handed: int = 0

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


def _burden(load: Load) -> tuple[bool, int, int]:
    return bool(load.under_way), load.open + load.under_way, load.handed
