"""Virtual time: an event loop that never waits, and the clocks that follow it.

Where nothing can be done before the next timer, the time of that timer is now. So a minute of a
gateway passes in a fraction of a second, and comes out the same each time.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from broker_core import clock

_START_S = 1000.0
#: Steps of the loop in one moment of virtual time: more of them are a loop without an end.
_MOST_STEPS = 20_000


class StandsStill(BaseException):
    """Time does not pass any more: a task is busy for ever."""


class _Selector(selectors.SelectSelector):
    """Waits for nothing: the time passes instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = _START_S
        self._steps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        self._steps = 0 if timeout else self._steps + 1
        if self._steps > _MOST_STEPS:
            raise StandsStill(f"{_MOST_STEPS} steps of the loop in one moment")
        if not ready:
            if timeout is None:
                raise StandsStill("every task waits for something that no timer brings")
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the selector's."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.set_exception_handler(lambda *_: None)  # bugs of mutants

    def time(self) -> float:
        return self._virtual.now_s


@contextmanager
def _clocks(loop: VirtualLoop) -> Iterator[None]:
    """Whoever took the clocks by name gets the loop's."""
    real = (clock.now_ns, clock.wall_ms)
    virtual = (lambda: int(loop.time() * 1e9), lambda: int(loop.time() * 1e3))
    changed = [
        (module, name, function)
        for module in list(sys.modules.values())
        for name, function in zip(("now_ns", "wall_ms"), real, strict=True)
        if getattr(module, "__dict__", {}).get(name) is function
    ]
    for module, name, _ in changed:
        setattr(module, name, virtual[0] if name == "now_ns" else virtual[1])
    try:
        yield
    finally:
        for module, name, function in changed:
            setattr(module, name, function)


def run_virtually(main: Coroutine[Any, Any, None]) -> None:
    """Run *main* to its end in virtual time; what it leaves behind is cancelled."""
    loop = VirtualLoop()
    with _clocks(loop):
        try:
            loop.run_until_complete(main)
        finally:
            with suppress(StandsStill):
                _cancel_all(loop)
            loop.close()


def _cancel_all(loop: VirtualLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=60))
