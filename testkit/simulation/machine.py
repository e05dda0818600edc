"""Clocks and randomness of simulated processes, as the product reads them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import broker_core.chance
import broker_core.client.sending
import broker_core.clock
import thin_client.chance
import thin_client.clock
from broker_core.client.message_ids import MessageIds
from testkit.simulation.loop import SimulatedLoop
from testkit.simulation.process import PROCESS, SimulatedProcess

#: Start of wall clocks, ns since 1970.
WALL_START_NS = 1_790_000_000_000_000_000


class _Machine(broker_core.chance.System):
    """Random sources: one for each process, and one for code outside of all processes."""

    def __init__(self, seed: int) -> None:
        self._outside = random.Random(f"{seed}/outside")

    def _chance(self) -> random.Random:
        process = PROCESS.get()
        return self._outside if process is None else process.chance

    def random(self) -> float:
        return self._chance().random()

    def token(self, size: int) -> bytes:
        return self._chance().randbytes(size)

    def process_id(self) -> int:
        process = PROCESS.get()
        return 1 if process is None else process.number

    def address(self) -> str:
        process = PROCESS.get()
        return "127.0.0.1" if process is None else process.host


class _MessageIds:
    """Message id generators: one for each process, as in reality."""

    def __init__(self) -> None:
        self._of: dict[SimulatedProcess | None, MessageIds] = {}

    def new(self) -> str:
        """Return an id from the calling process's generator."""
        process = PROCESS.get()
        if process not in self._of:
            self._of[process] = MessageIds()
        return self._of[process].new()


@contextmanager
def _utc() -> Iterator[None]:
    """Set the time zone of all machines: message ids count from the local start of a month."""
    try:
        with mock.patch.dict(os.environ, TZ="UTC"):
            time.tzset()
            yield
    finally:
        time.tzset()


@contextmanager
def machine_of(loop: SimulatedLoop) -> Iterator[None]:
    """Let the product read the clocks of *loop*, and randomness from its seed, until the end."""

    def monotonic_ns() -> int:
        return loop.now_ns

    def wall_ns() -> int:
        process = PROCESS.get()
        offset_ns = 0 if process is None else process.wall_offset_ns
        return WALL_START_NS + loop.now_ns + offset_ns

    machine = _Machine(loop.seed)
    with ExitStack() as stack:
        stack.enter_context(_utc())
        stack.enter_context(broker_core.clock.use_clocks(monotonic_ns, wall_ns))
        stack.enter_context(thin_client.clock.use_clocks(monotonic_ns, wall_ns))
        stack.enter_context(broker_core.chance.use_source(machine))
        stack.enter_context(thin_client.chance.use_source(machine.random, machine.token))
        stack.enter_context(
            mock.patch.object(broker_core.client.sending, "message_ids", _MessageIds())
        )
        yield
