"""A listening address that all workers share."""

from __future__ import annotations

import socket
from collections.abc import Callable

import structlog

from broker_core.acceptor import Acceptor
from proxy.errors import OrderlaneError
from proxy.settings.types import at_port, host_port

_log = structlog.get_logger("listener")


class SharedListener:
    """Listens on one address. Connections wait in the system's backlog until ``open``."""

    def __init__(self, setting: str, address: str, give: Callable[[socket.socket], None]) -> None:
        """*give* gets each connection and closes it. Raises OrderlaneError that names *setting* if
        the port is not available.
        """
        try:
            self._acceptor = Acceptor(
                *host_port(address), lambda connection, _peer: give(connection), _no_more
            )
        except OSError as error:
            raise OrderlaneError(
                f"{setting}: cannot listen on {address}: {error.strerror or error};"
                " choose another port, or 0 for any free one"
            ) from None
        self.address = at_port(address, self._acceptor.address[1])

    def open(self) -> None:
        """Accept connections."""
        self._acceptor.open()

    def close(self) -> None:
        """Stop listening."""
        self._acceptor.close()


def _no_more(error: OSError) -> None:
    _log.error("cannot accept connections; retrying", reason=error.strerror)
