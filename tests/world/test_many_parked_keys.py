"""Cost of many parked keys for a proxy, in calls: the same per key as for a few."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from bench.parking import PROXY, Play
from testkit.simulation.loop import Callback, SimulatedLoop
from testkit.simulation.process import current_process
from testkit.simulation.world import World, simulate

_FEW, _MANY = 150, 900


class CountingLoop(SimulatedLoop):
    """Counts function calls in the proxy, including those of C and steps of generators."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.calls = 0

    def call_soon(self, callback: Callable[..., object], *args: Any, **named: Any) -> Callback:  # type: ignore[override]
        return super().call_soon(self._counted, callback, *args, **named)

    def call_at_ns(
        self, at_ns: int, callback: Callable[..., object], *args: Any, **named: Any
    ) -> Callback:
        return super().call_at_ns(at_ns, self._counted, callback, *args, **named)

    def _counted(self, callback: Callable[..., object], *args: Any) -> None:
        process = current_process()
        if process is None or process.name != PROXY:
            callback(*args)
            return
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            callback(*args)
        finally:
            sys.setprofile(before)

    def _note(self, _frame: object, event: str, _argument: object) -> None:
        self.calls += event in ("call", "c_call")


def calls(keys: int, *, messages: int, queues: int) -> int:
    """Return the proxy's calls while *keys* are parked and redriven."""

    async def play(world: World) -> int:
        loop = world.loop
        assert isinstance(loop, CountingLoop)
        counted = Play(world, lambda: loop.calls, keys=keys, messages=messages, queues=queues)
        await counted.run()
        return loop.calls

    return simulate(play, seed=3, loop_of=CountingLoop)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("messages", "queues"),
    [
        (1, 1),
        pytest.param(1, 4, marks=pytest.mark.slow),
        pytest.param(3, 1, marks=pytest.mark.slow),
    ],
)
def test_the_calls_grow_with_the_messages(messages: int, queues: int) -> None:
    few, many = (calls(keys, messages=messages, queues=queues) for keys in (_FEW, _MANY))
    assert many < few * _MANY / _FEW
