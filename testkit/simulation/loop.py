"""An event loop that never waits: time advances to the next timer when no callback is left.

Each timer fires up to 100 µs late, by a seeded amount, so timers for the same instant fire in any
order. Connections are those of ``network``; functions given to an executor run in the loop itself,
and their results arrive a moment later.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import socket
from collections.abc import Callable
from contextvars import copy_context
from heapq import heapify, heappop, heappush
from typing import Any

from testkit.simulation.network import Network, ServerSocket
from testkit.simulation.process import PROCESS, SimulatedProcess, State

#: Start of virtual time, ns: not a round number, and far from 0, which often means "never".
START_NS = 1_000_000_000_007
#: Callbacks without progress of time after which a task counts as looping forever.
_MOST_CALLBACKS = 500_000
_LATEST_NS = 100_000
_THREAD_NS = 150_000


class StandsStill(BaseException):
    """Time no longer advances: all tasks wait forever, or one loops forever."""


class Callback:
    """Replaces ``asyncio.Handle`` and ``TimerHandle``, in a third of their time."""

    __slots__ = ("_when_s", "args", "context", "function", "is_cancelled", "loop")

    def __init__(
        self,
        function: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        when_s: float = 0.0,
        loop: SimulatedLoop | None = None,
    ) -> None:
        """Create a callback. *loop*: set while it is among the loop's timers."""
        self.function = function
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False
        self._when_s = when_s
        self.loop = loop

    def cancel(self) -> None:
        """Cancel the call."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.args = ()  # release referenced objects
            if self.loop is not None:
                self.loop.timer_was_cancelled()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when_s


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time. The same *seed* gives the same order of events."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.now_ns = START_NS
        self.seed = seed
        self._fraction = random.Random(f"{seed}/timers").random
        self._timers: list[tuple[int, int, Callback]] = []
        self._cancelled_timers = 0
        self._number = 0
        self._callbacks = 0  # since time last advanced
        self._last_in_thread: dict[object, int] = {}
        self.network = Network(self, random.Random(f"{seed}/network"))

    def time(self) -> float:
        return self.now_ns / 1e9

    # ---- callbacks and timers -------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Callback:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = Callback(callback, args, context)
        self._ready.append(handle)  # type: ignore[arg-type]
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Callback:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Callback:
        at_ns = self.now_ns + int(self._fraction() * _LATEST_NS)
        if delay > 0:
            at_ns += int(delay * 1e9)
        timer = Callback(callback, args, context, at_ns / 1e9, self)
        self._number += 1
        heappush(self._timers, (at_ns, self._number, timer))
        return timer

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Callback:
        late_ns = int(self._fraction() * _LATEST_NS)
        at_ns = max(self.now_ns, int(when * 1e9) + 1) + late_ns
        return self.call_at_ns(at_ns, callback, *args, context=context, when=when)

    def call_at_ns(
        self,
        at_ns: int,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
        when: float | None = None,
    ) -> Callback:
        """Call *callback* at exactly that time."""
        timer = Callback(callback, args, context, at_ns / 1e9 if when is None else when, self)
        self._number += 1
        heappush(self._timers, (at_ns, self._number, timer))
        return timer

    def timer_was_cancelled(self) -> None:
        """Remove cancelled timers once they are more than half of all."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 100 and self._cancelled_timers > len(self._timers) // 2:
            self._timers = [each for each in self._timers if not each[2].is_cancelled]
            heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Run until the loop stops. Nothing waits for the machine, so a single pass is enough."""
        ready: Any = self._ready
        running = State.RUNNING
        while True:
            if not ready:
                self._let_time_pass()
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
                context = handle.context
                process = context.get(PROCESS)
                if process is not None and process.state is not running:
                    if process.state is State.PAUSED:
                        process.held.append(handle)
                    continue
                try:
                    context.run(handle.function, *handle.args)
                except (SystemExit, KeyboardInterrupt, StandsStill):
                    raise
                except BaseException as error:
                    message = f"Exception in callback {handle.function!r}"
                    self.call_exception_handler({"message": message, "exception": error})
            if self._stopping:
                return
            self._callbacks += 1
            if self._callbacks > _MOST_CALLBACKS:
                raise StandsStill(f"{_MOST_CALLBACKS} callbacks without progress of time")

    def _let_time_pass(self) -> None:
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heappop(timers)
            self._cancelled_timers -= 1
        if not timers:
            if self._stopping:
                return
            raise StandsStill("every task waits, and no timer is set")
        if timers[0][0] > self.now_ns:
            self.now_ns = timers[0][0]
            self._callbacks = 0
        while timers and timers[0][0] <= self.now_ns:
            timer = heappop(timers)[2]
            timer.loop = None
            if timer.is_cancelled:
                self._cancelled_timers -= 1
            else:
                self._ready.append(timer)  # type: ignore[arg-type]

    def resume(self, process: SimulatedProcess) -> None:
        """Resume a paused process; its overdue callbacks run first."""
        self._ready.extend(process.resume())

    # ---- threads --------------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run *func* at once; its result is known a moment later, in order for one executor.

        A function that waits for another task of this loop would block forever.
        """
        result: asyncio.Future[Any] = self.create_future()
        at_ns = self.now_ns + self.thread_ns()
        if executor is not None:
            at_ns = max(at_ns, self._last_in_thread.get(executor, 0) + 1)
            self._last_in_thread[executor] = at_ns
        try:
            value = func(*args)
        except Exception as error:
            self.call_at_ns(at_ns, fail, result, error)
        else:
            self.call_at_ns(at_ns, succeed, result, value)
        return result

    def thread_ns(self) -> int:
        """Return the time that a thread takes now to pass its result to the loop."""
        process = PROCESS.get()
        slow_ns = 0 if process is None else process.slow_disk_ns
        return int(self._fraction() * _THREAD_NS) + slow_ns

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: no executor exists."""

    # ---- connections ----------------------------------------------------------------------------

    async def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        return await self.network.connect(protocol_factory, *args, **options)

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        return await self.network.listen(protocol_factory, *args, **options)

    def remove_reader(self, fd: Any) -> bool:
        """Let a server accept no further connections."""
        if isinstance(fd, ServerSocket):
            self.network.forget(fd.server)
        return True

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        await self.network.sock_connect(sock, address)

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        address = (self.network.resolve(host), int(port or 0))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        raise NotImplementedError("simulated processes receive no signals")

    # ---- methods required by BaseEventLoop ------------------------------------------------------

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: connections are timers."""


def succeed(result: asyncio.Future[Any], value: Any) -> None:
    """Set *value*, unless *result* was cancelled meanwhile."""
    if not result.done():
        result.set_result(value)


def fail(result: asyncio.Future[Any], error: BaseException) -> None:
    """Set *error*, unless *result* was cancelled meanwhile."""
    if not result.done():
        result.set_exception(error)
