"""Connections that came to the port of all workers, and were handed to this one."""

from __future__ import annotations

import socket

from proxy.downstream.port.connection import Connection
from proxy.downstream.port.server import ThriftServer


class Adopted:
    """Those that are open. One per process."""

    def __init__(self, server: ThriftServer) -> None:
        self._server = server
        self._connections: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def movable(self) -> int:
        """How many are of clients that may go on at another worker."""
        return sum(connection.movable for connection in self._connections.values())

    async def take(self, accepted: socket.socket) -> None:
        """Serve one more."""
        connection = await self._server.adopt(accepted)
        if connection is not None and connection.connection_id in self._server.open:
            self._connections[connection.connection_id] = connection

    def forget_ended(self) -> None:
        """Some connection has ended. Caller: before counting."""
        for number in self._connections.keys() - self._server.open.keys():
            del self._connections[number]

    def let_go(self, count: int) -> None:
        """End *count* connections of clients that may go on elsewhere, or as many as there are
        between two calls, or with a pull that waits.
        """
        for connection in list(self._connections.values()):
            if count and connection.movable and connection.let_go():
                count -= 1
