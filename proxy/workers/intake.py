"""The worker's side of the channel: accepts passed connections and sends reports."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from broker_core.tasks import cancel_and_wait, spawn
from proxy.admin.http import AdminHttp
from proxy.downstream.port.passed_connections import PassedConnections
from proxy.downstream.port.server import ThriftServer
from proxy.listening import Addresses
from proxy.workers import channel
from proxy.workers.channel import Gone, Report

_log = structlog.get_logger("worker")

_REPORT_EVERY_S = 1.0


@dataclass(slots=True, eq=False)
class Intake:
    """Call ``start`` once the proxy serves, and ``close`` after it has stopped."""

    end: socket.socket
    addresses: Addresses
    thrift: ThriftServer
    http: AdminHttp
    file_digest: Callable[[], str]
    is_stopping: Callable[[], bool]
    _passed: PassedConnections = field(init=False)
    _taken: int = 0
    _reporting: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._passed = PassedConnections(self.thrift)

    def start(self) -> None:
        """Accept connections; the first report tells the supervisor that this worker is ready."""
        asyncio.get_running_loop().add_reader(self.end, self._take)
        self.thrift.call_on_change(self._report)
        self._reporting = spawn(self._report_forever(), name="report to the supervisor")

    async def close(self) -> None:
        """Accept no more connections."""
        self.thrift.call_on_change(None)
        asyncio.get_running_loop().remove_reader(self.end)
        await cancel_and_wait(self._reporting)
        channel.close(self.end)

    def _take(self) -> None:
        try:
            while (received := channel.receive(self.end)) is not None:
                if isinstance(received, int):
                    self._passed.release(received)
                    continue
                if received == "lost":
                    self._taken += 1
                    _log.error(
                        "connection refused: this worker has reached its limit of open files"
                    )
                    self._report()
                    continue
                port, accepted = received
                self._taken += 1
                take = self.http.accept_passed if port == "http" else self._passed.take
                spawn(take(accepted), name=f"connection for {port}").add_done_callback(self._report)
        except Gone:
            # Stop as after SIGTERM, and at once if it stops already, as after a second one: no
            # process would restart or stop this one.
            _log.error("the supervisor has exited: this worker stops")
            asyncio.get_running_loop().remove_reader(self.end)
            if self.is_stopping():
                os._exit(128 + signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    def _report(self, _taken: object = None) -> None:
        self._passed.forget_ended()
        channel.send_report(  # a report that does not fit is superseded by the next
            self.end,
            Report(
                self.addresses.thrift,
                self.addresses.http,
                listening=self.thrift.listening,
                open=len(self._passed),
                movable=self._passed.movable,
                taken=self._taken,
                file=self.file_digest(),
            ),
        )

    async def _report_forever(self) -> None:
        while True:
            self._report()
            await asyncio.sleep(_REPORT_EVERY_S)
