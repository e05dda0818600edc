"""Connections that the supervisor accepted and passed to this worker."""

from __future__ import annotations

import socket

from proxy.downstream.port.connection import Connection
from proxy.downstream.port.server import ThriftServer


class PassedConnections:
    """Open passed connections of this process."""

    def __init__(self, server: ThriftServer) -> None:
        self._server = server
        self._connections: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def movable(self) -> int:
        """Number of connections whose clients may continue at another worker."""
        return sum(connection.movable for connection in self._connections.values())

    async def take(self, accepted: socket.socket) -> None:
        """Serve the connection *accepted*."""
        connection = await self._server.accept_passed(accepted)
        if connection is not None and connection.connection_id in self._server.open:
            self._connections[connection.connection_id] = connection

    def forget_ended(self) -> None:
        """Forget ended connections; call it before counting."""
        for number in self._connections.keys() - self._server.open.keys():
            del self._connections[number]

    def release(self, count: int) -> None:
        """Close up to *count* connections of movable clients that are between calls or have a
        waiting pull.
        """
        for connection in list(self._connections.values()):
            if count and connection.movable and connection.close_if_idle():
                count -= 1
