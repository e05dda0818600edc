"""The simulated loop of one test, also of applications: virtual time, network and clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic as real_s
from typing import Any

from testkit.simulation.loop import START_NS, SimulatedLoop, StandsStill, fail, succeed
from testkit.simulation.machine import machine_of
from testkit.simulation.threads import Threads, simulated_waits

#: Longest test, in virtual time; a longer wait would never end.
_LONGEST_NS = 6 * 3600 * 1_000_000_000
#: The same in real time.
_LONGEST_S = 100.0


class PytestLoop(SimulatedLoop):
    """Installs its clocks when it is created, and removes them when it is closed."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._installed = ExitStack()
        self._installed.enter_context(machine_of(self))
        self._installed.enter_context(simulated_waits(self))
        self._threads = Threads(self)
        self._began_s = real_s()
        self._passed = 0

    def _let_time_pass(self) -> None:
        self._passed += 1
        if self.now_ns - START_NS > _LONGEST_NS:
            raise StandsStill("six hours of virtual time have passed: the test waits forever")
        if self._passed % 1000 == 0 and real_s() - self._began_s > _LONGEST_S:
            raise StandsStill(f"the test has run for {_LONGEST_S:g} s")
        super()._let_time_pass()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run *func* like any simulated loop, except that handlers and functions of
        ``asyncio.to_thread`` may wait.
        """
        if executor is not None and executor._max_workers == 1:
            return super().run_in_executor(executor, func, *args)
        result: asyncio.Future[Any] = self.create_future()

        def done(value: Any, error: BaseException | None) -> None:
            at_ns = self.now_ns + self.thread_ns()
            if error is None:
                self.call_at_ns(at_ns, succeed, result, value)
            else:
                self.call_at_ns(at_ns, fail, result, error)

        self._threads.call(lambda: func(*args), done)
        return result

    def close(self) -> None:
        self._threads.close()
        super().close()
        self._installed.close()
