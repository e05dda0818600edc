"""The simulated loop for pytest-asyncio: a test's own virtual time, network and clocks."""

from __future__ import annotations

import time
from contextlib import ExitStack

from testkit.simulation.loop import START_NS, SimulatedLoop, StandsStill
from testkit.simulation.machine import machine_of

#: Longest test, in virtual time: what waits longer waits in vain.
_LONGEST_NS = 6 * 3600 * 1_000_000_000
#: The same in real time.
_LONGEST_S = 100.0


class PytestLoop(SimulatedLoop):
    """Installs its clocks when it is made, and takes them out when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._installed = ExitStack()
        self._installed.enter_context(machine_of(self))
        self._began_s = time.monotonic()
        self._turns = 0

    def _run_once(self) -> None:
        self._turns += 1
        if self.now_ns - START_NS > _LONGEST_NS:
            raise StandsStill("six hours of virtual time have passed: the test waits in vain")
        if self._turns % 1000 == 0 and time.monotonic() - self._began_s > _LONGEST_S:
            raise StandsStill(f"the test is busy for {_LONGEST_S:g} s")
        super()._run_once()

    def close(self) -> None:
        super().close()
        self._installed.close()
