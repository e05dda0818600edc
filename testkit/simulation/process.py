"""Simulated processes: the unit of kills, pauses and network cuts.

Code belongs to a process by its context; tasks, timers and connections inherit it.
"""

from __future__ import annotations

import contextvars
import random
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


class State(Enum):
    """The state of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class SimulatedProcess:
    """One process of the world; a restart creates a new one.

    *name* is unique among the processes alive at the same time, *host* the address that it listens
    at and connects from, *chance* its own source of randomness.
    """

    def __init__(self, name: str, *, number: int, host: str, chance: random.Random) -> None:
        self.name = name
        self.number = number
        self.host = host
        self.chance = chance
        self.state = State.RUNNING
        self.wall_offset_ns = 0
        self.slow_disk_ns = 0
        self.held: deque[Any] = deque()
        """Callbacks that became due during a pause."""
        self.at_death: list[Callable[[], None]] = []
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"<SimulatedProcess {self.name} {self.state.value}>"

    @property
    def runs(self) -> bool:
        """False while it is paused, and once it is dead."""
        return self.state is State.RUNNING

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call *function* in this process."""
        return self.context.copy().run(function, *arguments)

    def kill(self) -> None:
        """Kill it at once: none of its code runs any more."""
        if self.state is State.DEAD:
            return
        self.state = State.DEAD
        self.held.clear()
        for end in self.at_death:
            end()

    def pause(self) -> None:
        """Pause it like SIGSTOP; overdue callbacks wait."""
        if self.state is State.RUNNING:
            self.state = State.PAUSED

    def resume(self) -> list[Any]:
        """Resume it like SIGCONT; return the overdue callbacks."""
        if self.state is not State.PAUSED:
            return []
        self.state = State.RUNNING
        due = list(self.held)
        self.held.clear()
        return due

    def jump_clock(self, by_s: float) -> None:
        """Change its wall clock."""
        self.wall_offset_ns += int(by_s * 1e9)

    def slow_disk(self, by_s: float) -> None:
        """Slow each disk access down by *by_s* seconds."""
        self.slow_disk_ns = int(by_s * 1e9)


PROCESS: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar(
    "simulated process", default=None
)


def current_process() -> SimulatedProcess | None:
    """Return the process whose code is running; None outside all of them."""
    return PROCESS.get()
