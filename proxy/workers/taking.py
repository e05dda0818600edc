"""The worker's side of the channel: accepts passed connections and sends reports."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import dataclass, field

import structlog

from broker_core.tasks import cancel_and_wait, spawn
from proxy.admin.http import AdminHttp
from proxy.downstream.port.passed_connections import Adopted
from proxy.downstream.port.server import ThriftServer
from proxy.listening import Addresses
from proxy.workers import channel
from proxy.workers.channel import Gone, Report

_log = structlog.get_logger("worker")

_TELL_EVERY_S = 1.0


@dataclass(slots=True, eq=False)
class Taking:
    """Call ``start`` once the proxy serves, and ``close`` after it has stopped."""

    end: socket.socket
    addresses: Addresses
    thrift: ThriftServer
    http: AdminHttp
    _adopted: Adopted = field(init=False)
    _taken: int = 0
    _telling: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._adopted = Adopted(self.thrift)

    def start(self) -> None:
        """Accept connections; the first report tells the supervisor that this worker is ready."""
        asyncio.get_running_loop().add_reader(self.end, self._take)
        self.thrift.call_on_change(self._tell)
        self._telling = spawn(self._tell_now_and_then(), name="report to the supervisor")

    async def close(self) -> None:
        """Accept no more connections."""
        self.thrift.call_on_change(None)
        asyncio.get_running_loop().remove_reader(self.end)
        await cancel_and_wait(self._telling)
        channel.close(self.end)

    def _take(self) -> None:
        try:
            while (given := channel.take(self.end)) is not None:
                if isinstance(given, int):
                    self._adopted.let_go(given)
                    continue
                if given == "lost":
                    self._taken += 1
                    _log.error(
                        "connection refused: this worker has reached its limit of open files"
                    )
                    self._tell()
                    continue
                door, accepted = given
                self._taken += 1
                take = self.http.adopt if door == "http" else self._adopted.take
                spawn(take(accepted), name=f"connection for {door}").add_done_callback(self._tell)
        except Gone:
            # Stop as after SIGTERM: no process would restart or stop this one.
            _log.error("the supervisor has exited: this worker stops")
            asyncio.get_running_loop().remove_reader(self.end)
            os.kill(os.getpid(), signal.SIGTERM)

    def _tell(self, _taken: object = None) -> None:
        self._adopted.forget_ended()
        channel.tell(  # a report that does not fit is superseded by the next
            self.end,
            Report(
                self.addresses.thrift,
                self.addresses.http,
                listening=self.thrift.listening,
                open=len(self._adopted),
                movable=self._adopted.movable,
                taken=self._taken,
            ),
        )

    async def _tell_now_and_then(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(_TELL_EVERY_S)
