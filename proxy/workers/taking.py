"""The worker's side of the channel: takes connections, and tells how it is."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import dataclass

import structlog

from broker_core.tasks import cancel_and_wait, spawn
from proxy.admin.http import AdminHttp
from proxy.app import Addresses
from proxy.downstream.thrift_server import ThriftServer
from proxy.workers import channel
from proxy.workers.channel import Gone, Report

_log = structlog.get_logger("worker")

_TELL_EVERY_S = 1.0


@dataclass(slots=True, eq=False)
class Taking:
    """``start`` once the proxy serves, ``close`` when it has ended."""

    end: socket.socket
    addresses: Addresses
    thrift: ThriftServer
    http: AdminHttp
    _taken: int = 0
    _telling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take connections; the supervisor learns that this worker is ready."""
        asyncio.get_running_loop().add_reader(self.end, self._take)
        self.thrift.on_change = self._tell
        self._telling = spawn(self._tell_now_and_then(), name="tell the supervisor")

    async def close(self) -> None:
        """Take none any more."""
        self.thrift.on_change = None
        asyncio.get_running_loop().remove_reader(self.end)
        await cancel_and_wait(self._telling)
        channel.close(self.end)

    def _take(self) -> None:
        try:
            while (given := channel.take(self.end)) is not None:
                door, connection = given
                self._taken += 1
                server = self.http if door == "http" else self.thrift
                spawn(server.adopt(connection), name=f"connection for {door}")
                self._tell()
        except Gone:
            # As if told to end: nobody would start this process again, or stop it.
            _log.error("the supervisor is gone: this worker ends")
            asyncio.get_running_loop().remove_reader(self.end)
            os.kill(os.getpid(), signal.SIGTERM)

    def _tell(self) -> None:
        channel.tell(  # what does not fit is in the next one
            self.end,
            Report(
                self.addresses.thrift,
                self.addresses.http,
                listening=self.thrift.listening,
                open=len(self.thrift.adopted),
                taken=self._taken,
            ),
        )

    async def _tell_now_and_then(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(_TELL_EVERY_S)
