"""Listening sockets that pass on each accepted connection as a plain socket.

For callers that must see a connection before the event loop makes a transport of it: to inspect its
first byte, or to pass it to another process.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

_BACKLOG = 1024
#: Connections accepted in one call, before the loop runs other work.
_AT_ONCE = 64
#: Pause when the system has no more file descriptors.
_PAUSE_S = 1.0


class Acceptor:
    """Listening sockets; connections queue in the system until ``open``."""

    def __init__(
        self,
        host: str,
        port: int,
        take: Callable[[socket.socket, Any], None],
        on_full: Callable[[OSError], None],
    ) -> None:
        """Listen on *host* and *port*. Raise OSError if the address is not available.

        Args:
            host: name or address; of a name, the first address of each family
            port: 0 for any free one
            take: receives each connection with its peer's address, and must close it
            on_full: receives the error when no connection can be accepted for a second
        """
        self._take = take
        self._on_full = on_full
        self._sockets: list[socket.socket] = []
        try:
            self._listen(host, port)
        except OSError:
            self.close()
            raise

    @property
    def address(self) -> Any:
        """Address of the first listening socket, as ``getsockname`` returns it."""
        return self._sockets[0].getsockname()

    def open(self) -> None:
        """Start to accept connections. Needs the running loop."""
        for listener in self._sockets:
            self._go_on(listener)

    def close(self) -> None:
        """Stop listening."""
        for listener in self._sockets:
            if listener.fileno() >= 0:
                _stop(listener)
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
                connection, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_full(error)
                _stop(listener)
                asyncio.get_running_loop().call_later(_PAUSE_S, self._go_on, listener)
                return
            self._take(connection, peer)

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)


def _stop(listener: socket.socket) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return  # not yet opened
    loop.remove_reader(listener)
