"""An address at which all workers' clients come: sockets that listen, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog

from proxy.errors import OrderlaneError
from proxy.setting_types import at_port, host_port

_log = structlog.get_logger("door")

_BACKLOG = 1024
#: Connections taken before the loop gets its turn.
_AT_ONCE = 64
#: Pause when the system has no more sockets.
_PAUSE_S = 1.0


class Door:
    """Listens at one address. ``open`` lets connections in; until then they wait in the system."""

    def __init__(self, setting: str, address: str, give: Callable[[socket.socket], None]) -> None:
        """*give* gets each connection, and closes it. Raises OrderlaneError that names *setting* if
        the port cannot be had.
        """
        self._give = give
        self._sockets: list[socket.socket] = []
        try:
            self._listen(*host_port(address))
        except OSError as error:
            self.close()
            raise OrderlaneError(
                f"{setting}: cannot listen on {address}: {error.strerror or error};"
                " choose another port, or 0 for any free one"
            ) from None
        self.address = at_port(address, self._sockets[0].getsockname()[1])

    def open(self) -> None:
        """Let connections in."""
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Listen no more."""
        for listener in self._sockets:
            if listener.fileno() >= 0:
                self._stop(listener)
                listener.close()

    def _listen(self, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family in dict.fromkeys(each[0] for each in found):
            address = next(each[4] for each in found if each[0] == family)
            own = socket.create_server((str(address[0]), port), family=family, backlog=_BACKLOG)
            own.setblocking(False)
            self._sockets.append(own)
            port = own.getsockname()[1]

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("no connection can be taken", reason=error.strerror)
                self._stop(listener)
                asyncio.get_running_loop().call_later(_PAUSE_S, self._go_on, listener)
                return
            self._give(connection)

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    @staticmethod
    def _stop(listener: socket.socket) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # not yet opened
        loop.remove_reader(listener)
