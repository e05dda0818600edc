"""Runs the worker processes and passes connections to them; sockets and processes, no decisions."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from broker_core.clock import now_ns
from broker_core.tasks import cancel_and_wait, spawn
from proxy.errors import OrderlaneError
from proxy.workers import channel
from proxy.workers.addresses import WorkerAddresses
from proxy.workers.channel import Gone, Report
from proxy.workers.loads import Load, Rebalancer, by_preference
from proxy.workers.restarts import Restarts, Silence, bad_ends, how
from proxy.workers.shared_listener import SharedListener

_log = structlog.get_logger("workers")

#: Seconds between looks at the workers.
LOOK_S = 1.0
_NOT_STARTED = 1  # exit code of a worker that could not start


@dataclass(frozen=True, slots=True)
class Launch:
    """The command of a worker, and its standard input."""

    arguments: Sequence[str]
    given: bytes = b""


#: Returns how to start a worker, given its addresses and the file number of its channel.
Command = Callable[[WorkerAddresses, int], Launch]


@dataclass(slots=True, eq=False)
class _Worker:
    addresses: WorkerAddresses
    load: Load = field(default_factory=Load)
    restarts: Restarts = field(default_factory=Restarts)
    silence: Silence = field(default_factory=lambda: Silence(0, 0))
    process: asyncio.subprocess.Process | None = None
    end: socket.socket | None = None  # the supervisor's end of the channel
    report: Report | None = None  # last report of the running process; None: not ready
    keeping: asyncio.Task[int] | None = None

    @property
    def number(self) -> int:
        return self.addresses.number

    def signal(self, number: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Call ``start``, then ``close``, which drains all workers; once each."""

    def __init__(
        self,
        workers: Sequence[WorkerAddresses],
        command: Command,
        *,
        shared: Mapping[str, str],
        reported: Callable[[Report], None] = lambda _report: None,
    ) -> None:
        """*shared*: shared addresses by setting; *reported* gets each report."""
        self._command = command
        self._reported = reported
        self._workers = {addresses.number: _Worker(addresses) for addresses in workers}
        self._shared = shared
        self._listeners: dict[str, SharedListener] = {}
        self._ready: asyncio.Future[None] | None = None
        self._closing = asyncio.Event()
        self._checking: asyncio.Task[None] | None = None
        self._rebalancer = Rebalancer()

    async def start(self) -> dict[str, str]:
        """Start all workers; return the shared addresses by setting.

        Raises OrderlaneError if a port is not available, or a worker exits or stands still; then
        all have stopped.
        """
        self._ready = asyncio.get_running_loop().create_future()
        try:
            for setting, address in self._shared.items():
                port: channel.Port = "http" if setting == "listen.http" else "thrift"
                self._listeners[setting] = SharedListener(
                    setting, address, partial(self._pass_connection, port)
                )
            for worker in self._workers.values():
                worker.keeping = spawn(self._keep(worker), name=f"worker {worker.number}")
            self._checking = spawn(self._check_forever(), name="check workers")
            await self._ready
        except BaseException:
            with contextlib.suppress(OrderlaneError):  # the first error is the one to report
                await self.close()
            raise
        for listener in self._listeners.values():
            listener.open()
        return {setting: listener.address for setting, listener in self._listeners.items()}

    async def close(self) -> None:
        """Drain all workers and wait for them; one that does not report is killed. Raises
        OrderlaneError that names those that failed.
        """
        self._closing.set()
        for listener in self._listeners.values():
            listener.close()
        for worker in self._workers.values():
            worker.signal(signal.SIGTERM if worker.report is None else channel.DRAIN)
        codes = {
            worker.number: await worker.keeping
            for worker in self._workers.values()
            if worker.keeping is not None
        }
        await cancel_and_wait(self._checking)
        if (failed := bad_ends(codes)) is not None:
            raise OrderlaneError(failed)

    def pass_on(self, number: int) -> None:
        """Send a signal to all workers that are ready; it would end the others."""
        for worker in self._workers.values():
            if worker.report is not None:
                worker.signal(number)

    def workers(self) -> list[dict[str, Any]]:
        """Return the ready workers, for the ready line."""
        return [
            {
                "worker": worker.number,
                "pid": worker.process.pid,
                "thrift": worker.report.thrift,
                "http": worker.report.http,
            }
            for worker in self._workers.values()
            if worker.report is not None and worker.process is not None
        ]

    # ---- processes ------------------------------------------------------------------------------

    async def _keep(self, worker: _Worker) -> int:
        """Run *worker* with restarts until shutdown; return its last exit code."""
        while True:
            started_ns = now_ns()
            try:
                code = await self._run(worker)
            except OSError as error:  # out of memory or processes
                _log.error(
                    "cannot start a worker; retrying", worker=worker.number, reason=str(error)
                )
                code = _NOT_STARTED
            if self._closing.is_set():
                return code
            assert self._ready is not None
            if not self._ready.done():
                sentence = f"worker {worker.number} ended {how(code)} before it was ready"
                self._ready.set_exception(OrderlaneError(sentence))
                return 0  # ``start`` reports it
            pause_s = worker.restarts.pause_s((now_ns() - started_ns) / 1e9)
            _log.error(
                "worker exited; restarting it",
                worker=worker.number,
                ended=how(code),
                pause_s=pause_s,
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)
            if self._closing.is_set():
                return 0  # no process to drain

    async def _run(self, worker: _Worker) -> int:
        ours, theirs = channel.pair()
        loop = asyncio.get_running_loop()
        try:
            launch = self._command(worker.addresses, theirs.fileno())
            worker.process = await asyncio.create_subprocess_exec(
                *launch.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=2,  # the supervisor's stdout is reserved for its ready line
                pass_fds=(theirs.fileno(),),
                # Ctrl-C in a terminal signals only the supervisor, or it would count twice here.
                start_new_session=True,
            )
            theirs.close()
            assert worker.process.stdin is not None
            worker.process.stdin.write(launch.given)
            worker.process.stdin.close()  # once all is written
            if self._closing.is_set():
                worker.signal(signal.SIGTERM)  # the signal to all workers came before this process
            worker.end, worker.load = ours, Load()
            now_s = now_ns() / 1e9
            worker.silence = Silence(heard_s=now_s, looked_s=now_s)
            loop.add_reader(ours, self._on_readable, worker, ours)
            code = await worker.process.wait()
            # A worker that was never ready has nothing to drain, and no signal handler yet.
            return 0 if self._closing.is_set() and worker.report is None else code
        finally:
            loop.remove_reader(ours)
            worker.process = worker.end = worker.report = None
            worker.load = Load()
            channel.close(ours)
            channel.close(theirs)

    def _on_readable(self, worker: _Worker, end: socket.socket) -> None:
        try:
            while (report := channel.next_report(end)) is not None:
                self._on_report(worker, report)
        except Gone:  # its exit is handled where the process is awaited
            asyncio.get_running_loop().remove_reader(end)

    def _on_report(self, worker: _Worker, report: Report) -> None:
        if worker.report is None and self._ready is not None and self._ready.done():
            _log.info("worker ready", worker=worker.number, thrift=report.thrift, http=report.http)
        worker.report = report
        self._reported(report)
        worker.load.reported(
            listening=report.listening,
            connections=report.open,
            movable=report.movable,
            taken=report.taken,
        )
        worker.silence.heard(now_ns() / 1e9)
        if self._ready is None or self._ready.done():
            return
        if all(each.report is not None for each in self._workers.values()):
            self._ready.set_result(None)

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = now_ns() / 1e9
            for worker in self._workers.values():
                if worker.process is not None and worker.silence.too_long(now_s):
                    _log.error("worker does not report; killing it", worker=worker.number)
                    worker.silence.heard(now_s)
                    worker.signal(signal.SIGKILL)
            if self._closing.is_set():
                continue
            if (uneven := self._rebalancer.look(self._loads())) is not None:
                number, count = uneven
                end = self._workers[number].end
                if end is not None and channel.release(end, count):
                    _log.info("moving clients to other workers", worker=number, leave=count)

    # ---- connections ----------------------------------------------------------------------------

    def _pass_connection(self, port: channel.Port, connection: socket.socket) -> None:
        """Pass *connection* to a worker; close it if none accepts it, and the client retries."""
        with connection:
            for number in by_preference(self._loads()):
                worker = self._workers[number]
                if worker.end is not None and channel.pass_connection(worker.end, port, connection):
                    worker.load.hand()
                    return

    def _loads(self) -> dict[int, Load]:
        return {worker.number: worker.load for worker in self._workers.values()}
