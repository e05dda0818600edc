"""Keeps the workers running, and hands them their clients: sockets and processes; no decisions."""

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
from proxy.workers.channel import Gone, Report
from proxy.workers.door import Door
from proxy.workers.loads import Evenness, Load, in_turn
from proxy.workers.places import Place
from proxy.workers.restarts import Restarts, Silence, bad_ends, how

_log = structlog.get_logger("workers")

_LOOK_S = 1.0
_NOT_STARTED = 1  # as if it had ended with this code

#: The command that runs a worker at a place, with the number of the file that is its channel.
Command = Callable[[Place, int], Sequence[str]]


@dataclass(slots=True, eq=False)
class _Worker:
    place: Place
    load: Load = field(default_factory=Load)
    restarts: Restarts = field(default_factory=Restarts)
    silence: Silence = field(default_factory=lambda: Silence(0, 0))
    process: asyncio.subprocess.Process | None = None
    end: socket.socket | None = None  # ours of the channel
    report: Report | None = None  # the last one of the process that runs; None: it is not ready
    keeping: asyncio.Task[int] | None = None

    @property
    def number(self) -> int:
        return self.place.number

    def signal(self, number: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """``start``, then ``close``, which drains all workers; both once."""

    def __init__(
        self, places: Sequence[Place], command: Command, *, doors: Mapping[str, str]
    ) -> None:
        """*doors*: by setting where clients come."""
        self._command = command
        self._workers = {place.number: _Worker(place) for place in places}
        self._where = doors
        self._doors: dict[str, Door] = {}
        self._ready: asyncio.Future[None] | None = None
        self._closing = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._evenness = Evenness()

    async def start(self) -> dict[str, str]:
        """Have all workers serve; by setting where they do. Raises OrderlaneError if a port cannot
        be had, or one of them ends; then none is left.
        """
        self._ready = asyncio.get_running_loop().create_future()
        try:
            for setting, address in self._where.items():
                kind: channel.Door = "http" if setting == "listen.http" else "thrift"
                self._doors[setting] = Door(setting, address, partial(self._give, kind))
            for worker in self._workers.values():
                worker.keeping = spawn(self._keep(worker), name=f"worker {worker.number}")
            await self._ready
        except BaseException:
            with contextlib.suppress(OrderlaneError):  # what is said is why
                await self.close()
            raise
        for door in self._doors.values():
            door.open()
        self._looking = spawn(self._look_forever(), name="look at workers")
        return {setting: door.address for setting, door in self._doors.items()}

    async def close(self) -> None:
        """Have all workers drain, and wait for them. Raises OrderlaneError that names those that
        failed meanwhile.
        """
        self._closing.set()
        for door in self._doors.values():
            door.close()
        await cancel_and_wait(self._looking)
        self.pass_on(signal.SIGTERM)
        codes = {
            worker.number: await worker.keeping
            for worker in self._workers.values()
            if worker.keeping is not None
        }
        if (failed := bad_ends(codes)) is not None:
            raise OrderlaneError(failed)

    def pass_on(self, number: int) -> None:
        """Send all workers a signal; one that is not ready yet knows none but those that end it."""
        for worker in self._workers.values():
            if number == signal.SIGTERM or worker.report is not None:
                worker.signal(number)

    def workers(self) -> list[dict[str, Any]]:
        """Those that are ready, for the ready line."""
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
        """Run it again and again; returns the code of its last end, once all are to end."""
        while True:
            started_ns = now_ns()
            try:
                code = await self._run(worker)
            except OSError as error:  # no memory, or no processes left
                _log.error("worker cannot be started", worker=worker.number, reason=str(error))
                code = _NOT_STARTED
            if self._closing.is_set():
                return code
            assert self._ready is not None
            if not self._ready.done():
                sentence = f"worker {worker.number} ended {how(code)} before it was ready"
                self._ready.set_exception(OrderlaneError(sentence))
                return 0  # it is told there
            pause_s = worker.restarts.pause_s((now_ns() - started_ns) / 1e9)
            _log.error(
                "worker ended, it is started again",
                worker=worker.number,
                ended=how(code),
                pause_s=pause_s,
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)
            if self._closing.is_set():
                return 0  # none is there that could drain

    async def _run(self, worker: _Worker) -> int:
        ours, theirs = channel.pair()
        loop = asyncio.get_running_loop()
        try:
            worker.process = await asyncio.create_subprocess_exec(
                *self._command(worker.place, theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,  # stdout is the supervisor's own, for its ready line
                pass_fds=(theirs.fileno(),),
                # Ctrl-C at a terminal is for the supervisor, or it would count twice here.
                start_new_session=True,
            )
            theirs.close()
            if self._closing.is_set():
                worker.signal(signal.SIGTERM)  # the one for all came too early
            worker.end, worker.load = ours, Load()
            now_s = now_ns() / 1e9
            worker.silence = Silence(heard_s=now_s, looked_s=now_s)
            loop.add_reader(ours, self._hear, worker, ours)
            code = await worker.process.wait()
            # One that never was ready has nothing to drain, and knows no signal yet.
            return 0 if self._closing.is_set() and worker.report is None else code
        finally:
            loop.remove_reader(ours)
            worker.process = worker.end = worker.report = None
            worker.load = Load()
            channel.close(ours)
            channel.close(theirs)

    def _hear(self, worker: _Worker, end: socket.socket) -> None:
        try:
            while (report := channel.hear(end)) is not None:
                self._on_report(worker, report)
        except Gone:  # its end is noticed where it is waited for
            asyncio.get_running_loop().remove_reader(end)

    def _on_report(self, worker: _Worker, report: Report) -> None:
        if worker.report is None and self._ready is not None and self._ready.done():
            _log.info("worker ready", worker=worker.number, thrift=report.thrift, http=report.http)
        worker.report = report
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

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = now_ns() / 1e9
            for worker in self._workers.values():
                if worker.process is not None and worker.silence.too_long(now_s):
                    _log.error("worker does not answer, it is killed", worker=worker.number)
                    worker.silence.heard(now_s)
                    worker.signal(signal.SIGKILL)
            if (uneven := self._evenness.look(self._loads())) is not None:
                number, count = uneven
                end = self._workers[number].end
                if end is not None and channel.let_go(end, count):
                    _log.info("clients are spread again", worker=number, leave=count)

    # ---- connections ----------------------------------------------------------------------------

    def _give(self, door: channel.Door, connection: socket.socket) -> None:
        """Hand it to a worker; it ends here if none takes it, and its client tries again."""
        with connection:
            for number in in_turn(self._loads()):
                worker = self._workers[number]
                if worker.end is not None and channel.hand_over(worker.end, door, connection):
                    worker.load.hand()
                    return

    def _loads(self) -> dict[int, Load]:
        return {worker.number: worker.load for worker in self._workers.values()}
