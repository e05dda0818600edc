"""TLS for accepted connections that are known before their handshake.

``asyncio`` shows a connection with TLS to its protocol after the handshake only, so a client that
never finishes one would not count anywhere. Here the layer in between counts it.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import uvloop

from broker_core.tracebacks import forget_frames
from proxy.net.tls import HANDSHAKE_S, SHUTDOWN_S

#: Returns the context of the next connection.
ContextOf = Callable[[], ssl.SSLContext]
#: Counts a connection of an address; returns False if it is one too many.
Enter = Callable[[Any, str], bool]
#: Counts a connection no more.
Leave = Callable[[Any], None]


def counted_tls(
    protocol: asyncio.BaseProtocol, context: ssl.SSLContext, enter: Enter, leave: Leave
) -> asyncio.BaseProtocol:
    """Return TLS between a transport and *protocol*, which counts from the accept on."""
    loop = asyncio.get_running_loop()
    layer: Any = _OnUvloop if isinstance(loop, uvloop.Loop) else _OnAsyncio
    counted: asyncio.BaseProtocol = layer(loop, protocol, context, enter, leave)
    return counted


if TYPE_CHECKING:
    _Layer = sslproto.SSLProtocol
else:
    _Layer = object  # each loop has its own


class _Counting(_Layer):
    """The count, in front of a loop's own TLS."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        enter: Enter,
        leave: Leave,
    ) -> None:
        options: dict[str, Any] = {
            "waiter": None,
            "server_side": True,
            "ssl_handshake_timeout": HANDSHAKE_S,
            "ssl_shutdown_timeout": SHUTDOWN_S,
        }
        super().__init__(loop, protocol, context, **options)
        self._counted = protocol
        self._enter = enter
        self._leave = leave

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, unless the connection is one too many."""
        if self._enter(self._counted, address_of(transport)):
            super().connection_made(transport)
        else:
            cast(asyncio.Transport, transport).abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the connection no more, whether or not its handshake was finished."""
        self._leave(self._counted)
        forget_frames(exc)
        super().connection_lost(exc)


class _OnAsyncio(_Counting, sslproto.SSLProtocol):
    """TLS of asyncio's loops."""


#: TLS of uvloop, which is faster. Its type is compiled, and in no stub.
_OnUvloop: Any = type("_OnUvloop", (_Counting, vars(uvloop.loop)["SSLProtocol"]), {})


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of the other end without its port; empty if it has none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
