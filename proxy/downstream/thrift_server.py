"""The Thrift server: sockets in, calls to services, answers out. No decisions.

One request at a time on a connection, as every DDMQ client expects; further frames wait. A method
answers by calling its ``Reply``, at once or later, so a waiting pull costs no task.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

import structlog
from thrift.Thrift import TApplicationException

from broker_core.errors import RemotingError
from broker_core.tasks import spawn
from proxy.downstream.thrift_frames import (
    Call,
    FrameBuffer,
    FrameError,
    Spliced,
    decode_call,
    encode_answer,
    encode_failure,
    encode_spliced,
)
from proxy.errors import OrderlaneError
from proxy.logs import NoisyLog
from proxy.settings import LimitSettings
from proxy.tls import HANDSHAKE_S, SHUTDOWN_S
from proxy.wakeup import Signal

_log = structlog.get_logger("thrift")

#: Bytes of further requests that are read while one is served; more wait in the client.
_READ_AHEAD = 65536


class Method(Protocol):
    """One method of a service: reads *arguments*, answers by *reply* now or later."""

    def __call__(self, arguments: Any, reply: Reply, /) -> None:
        """Serve one call."""


#: How a method answers a call that is not allowed.
Refuse = Callable[[Any, "Reply", OrderlaneError], None]


def _fail(_arguments: Any, reply: Reply, error: OrderlaneError) -> None:
    reply.fail(error)


@dataclass(frozen=True, slots=True)
class Entry:
    """A method with its generated ``*_args`` class, and what it answers who may not call it."""

    arguments: Callable[[], Any]
    method: Method
    refuse: Refuse = _fail


def awaiting(handler: Callable[[Any, Reply], Coroutine[Any, Any, Any]]) -> Method:
    """A method from a coroutine function that returns the result struct."""

    def method(arguments: Any, reply: Reply) -> None:
        async def answer() -> None:
            try:
                reply(await handler(arguments, reply))
            except Exception as error:
                reply.fail(error)

        spawn(answer(), name=f"thrift {reply.call.name}")

    return method


class Reply:
    """The one answer to one call. Calling it a second time raises RuntimeError: a bug of ours."""

    __slots__ = ("_answered", "call", "connection", "on_lost")

    def __init__(self, connection: Connection, call: Call) -> None:
        self.connection = connection
        self.call = call
        #: Called once if the connection ends before the answer has left the process whole.
        self.on_lost: Callable[[], None] | None = None
        self._answered = False

    @property
    def answered(self) -> bool:
        """True once the answer is on its way."""
        return self._answered

    def __call__(self, result: Any) -> None:
        """Answer with the generated ``*_result`` struct, or what is to be spliced into one."""
        if isinstance(result, Spliced):
            self._send(encode_spliced(self.call, result))
        else:
            self._send(encode_answer(self.call, result))

    def fail(self, error: Exception) -> None:
        """Answer that the server failed; the client sees a TApplicationException."""
        method = self.call.name
        if isinstance(error, OrderlaneError | RemotingError):
            noisy = self.connection.server.noisy
            noisy.warning(f"failed {method}", "request failed", method=method, reason=str(error))
        else:
            _log.error("request failed", method=method, exc_info=error)
        if not self._answered:  # else it broke after its answer: nobody waits any more
            sentence = f"{method} failed in the proxy: {error}"
            kind = TApplicationException.INTERNAL_ERROR
            self._send(encode_failure(self.call, kind, sentence))

    def lost(self) -> None:
        """The connection ended: the answer will not leave whole."""
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def _send(self, frame: bytes | list[bytes]) -> None:
        if self._answered:
            raise RuntimeError(f"{self.call.name} was answered twice")
        self._answered = True
        self.connection.answer(self, frame)


class Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, server: ThriftServer, connection_id: int) -> None:
        self.connection_id = connection_id
        self.address = ""
        self.home = ""
        self.server = server
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(server.limits.max_frame_bytes)
        self._current: Reply | None = None  # until its answer has left the process whole
        self._writing_paused = False
        self._reading_paused = False
        #: Whether its client may go on at another proxy: it settles where its leases are.
        self.movable = False
        #: Answers the pull that waits with nothing; None while none does.
        self.give_up: Callable[[], None] | None = None

    # ---- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport = cast(asyncio.Transport, transport)
        # pause_writing says at once that bytes stayed here, resume_writing that all have left. With
        # TLS, whose limit counts from 1, up to 64 KiB may stay below: an answer that is lost there
        # waits for the end of its leases.
        high = 0 if transport.get_extra_info("sslcontext") is None else 1
        self._transport.set_write_buffer_limits(high=high, low=0)
        peer, own = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        self.address = peer[0] if peer else ""
        self.home = _host_port(own[0], self.server.home_port or own[1]) if own else ""
        if not self.server.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._frames.receive_data(data)
        self._next_request()
        if self._current is not None and self._frames.buffered > _READ_AHEAD and self._transport:
            self._reading_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Bytes of the answer stayed here."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """All bytes have left the process: an answer's, or those of TLS itself."""
        self._writing_paused = False
        if self._current is None or self._current.answered:
            self._done()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended; whose answer did not leave whole is told."""
        self._transport = None
        self.server.forget(self)
        reply, self._current = self._current, None
        if reply is not None:
            reply.lost()

    # ---- the server's side ----------------------------------------------------------------------

    def answer(self, reply: Reply, frame: bytes | list[bytes]) -> None:
        """Write the answer to the current request, whole or in pieces; when it has left, take the
        next one.
        """
        if self._transport is None or self._transport.is_closing() or self._current is not reply:
            reply.lost()
            return
        if not reply.call.one_way:
            # Pauses writing if something stays, closes on an error.
            if isinstance(frame, bytes):
                self._transport.write(frame)
            else:
                self._transport.writelines(frame)
        if not (self._writing_paused or self._transport.is_closing()):
            self._done()

    def close(self) -> None:
        """End the connection after what is written has left."""
        if self._transport is not None:
            self._transport.close()

    def let_go(self) -> bool:
        """End the connection if nothing is lost by it; False in the middle of a call."""
        if self.give_up is not None:
            self.give_up()
        if self._current is not None or self._transport is None:
            return False
        self._transport.close()
        return True

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def _done(self) -> None:
        self._current = None
        if self._frames.buffered:
            asyncio.get_running_loop().call_soon(self._next_request)
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def _next_request(self) -> None:
        if self._current is not None or self._transport is None or self._transport.is_closing():
            return
        try:
            frame = self._frames.next_frame()
            if frame is None:
                return
            call = decode_call(frame)
            entry = self.server.methods.get(call.name)
            arguments = None if entry is None else call.decode(entry.arguments())
        except FrameError as error:
            self.server.closed_for(self, str(error))
            return
        self._current = reply = Reply(self, call)
        if entry is None:
            sentence = f"there is no method {call.name!r} here"
            failure = encode_failure(call, TApplicationException.UNKNOWN_METHOD, sentence)
            self.answer(reply, failure)
            return
        try:
            entry.method(arguments, reply)
        except Exception as error:
            reply.fail(error)


class ThriftServer:
    """Listens, and keeps the open connections. ``methods`` by name, of all services."""

    def __init__(self, methods: Mapping[str, Entry], limits: LimitSettings) -> None:
        self.methods = methods
        self.limits = limits
        self.bad_frames = 0
        self.refused_connections = 0
        self.open: dict[int, Connection] = {}
        self._addresses: Counter[str] = Counter()
        self.noisy = NoisyLog(_log)  # of what clients can cause at will
        self._all_closed = Signal()
        self._last_id = 0
        self._listeners: list[asyncio.Server] = []
        self._tls: ssl.SSLContext | None = None  # of the last listener
        #: Which port of this process clients are led back to; None: the one that they came to.
        self.home_port: int | None = None
        #: Called when ``listening`` is another, and when a connection has ended.
        self.on_change: Callable[[], None] | None = None

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen on *host*:*port* (0: any free one); returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            self._connection, host, port, backlog=1024, ssl=tls, **_times(tls)
        )
        self._listeners.append(listener)
        self._tls = tls
        self._changed()
        return int(listener.sockets[0].getsockname()[1])

    @property
    def listening(self) -> bool:
        """Whether new connections are taken."""
        return bool(self._listeners)

    async def adopt(self, accepted: socket.socket) -> Connection | None:
        """Serve a client that came to another process, as if it had come here; None if it is gone,
        or this server does not listen.
        """
        connection = self._connection()
        if self.listening:
            with suppress(OSError):  # it left, or spoke no TLS
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection, accepted, ssl=self._tls, **_times(self._tls)
                )
                return connection
        accepted.close()
        return None

    def stop_listening(self) -> None:
        """Take no new connections."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._changed()

    async def close(self, *, grace_s: float = 1.0) -> None:
        """Stop listening; end all connections, those whose clients do not read after *grace_s*."""
        self.stop_listening()
        for connection in list(self.open.values()):
            connection.close()
        if self.open and not await self._all_closed.wait(grace_s):
            for connection in list(self.open.values()):
                connection.abort()
            await self._all_closed.wait(grace_s)

    def admit(self, connection: Connection) -> bool:
        """Count a new connection in; False if it is one too many."""
        self.open[connection.connection_id] = connection
        self._addresses[connection.address] += 1
        full = len(self.open) > self.limits.max_connections
        if full or self._addresses[connection.address] > self.limits.max_connections_per_address:
            self.refused_connections += 1
            client = connection.address
            limit = "max_connections" if full else "max_connections_per_address"
            self.noisy.warning(
                f"refused {client}", "connection refused", client=client, reached=limit
            )
            return False
        return True

    def forget(self, connection: Connection) -> None:
        """Count a closed connection out."""
        if self.open.pop(connection.connection_id, None) is not None:
            self._addresses[connection.address] -= 1
            if not self._addresses[connection.address]:
                del self._addresses[connection.address]
        if not self.open:
            self._all_closed.fire()
        self._changed()

    def closed_for(self, connection: Connection, reason: str) -> None:
        """End a connection whose bytes are no request."""
        self.bad_frames += 1
        client = connection.address
        self.noisy.warning(
            f"bad {client}", "connection closed: not a request", client=client, reason=reason
        )
        connection.abort()

    def _connection(self) -> Connection:
        self._last_id += 1
        return Connection(self, self._last_id)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


def _times(tls: ssl.SSLContext | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": SHUTDOWN_S}


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
