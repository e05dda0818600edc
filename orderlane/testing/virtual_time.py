"""Tests in virtual time: waiting takes no time, and connections are in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from testkit.simulation.pytest_loop import PytestLoop

T = TypeVar("T")


def virtual_time_loop(seed: int = 0) -> asyncio.AbstractEventLoop:
    """Return an event loop in virtual time, for ``asyncio.Runner`` and plugins of test runners.

    Time advances to the next timer when all tasks wait. Clients and gateways in the loop read its
    clocks; ``time.time`` and the like are the machine's. It has no network, no subprocesses and no
    signals, and only one such loop can exist at a time: close it.

    The same *seed* gives the same order of events. If all tasks wait forever, or for more than six
    hours of virtual time, running the loop raises ``StandsStill``, a BaseException.
    """
    return PytestLoop(seed)


def run_in_virtual_time(main: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run *main* as ``asyncio.run`` does, in a ``virtual_time_loop``, and return its result::

    def test_a_failed_charge_is_retried_after_a_minute() -> None:
        run_in_virtual_time(failed_charge())  # takes less than a second
    """
    with asyncio.Runner(loop_factory=partial(virtual_time_loop, seed)) as runner:
        return runner.run(main)
