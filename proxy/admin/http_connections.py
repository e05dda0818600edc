"""Limits of HTTP connections: their number, memory, and time until a request is complete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from broker_core.connection_counts import ConnectionCounts
from broker_core.tls import certificate_of
from proxy.admin.routes import malformed
from proxy.downstream.port.load import Load
from proxy.net.counted_tls import ContextOf, address_of, counted_tls
from proxy.net.dead_peers import find_dead_peer
from proxy.observe.logs import NoisyLog
from proxy.settings.proxy_settings import LimitSettings

_log = structlog.get_logger("admin")
_noisy = NoisyLog(_log)

#: Longest request line: leaves room for a percent-encoded order key of 64 KiB.
MAX_LINE_BYTES = 256 * 1024
#: Bytes of all requests that are being received or served. Beyond it, connections whose request is
#: not small are closed.
MAX_RECEIVED_BYTES = 32 * 1024 * 1024
#: Size up to which a request is small: more than a browser sends.
SMALL_BYTES = 16 * 1024

#: Longest reason in the log: some contain the received bytes.
_REASON_CHARACTERS = 300

_Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class HttpTlsConnection:
    """An open connection, with the client's certificate in DER."""

    certificate: bytes | None
    abort: Callable[[], None]


class HttpConnection(RequestHandler):
    """One HTTP connection, whose bytes count from their arrival until the answer is complete.

    Bytes after an error of the request are dropped: aiohttp would parse them again, each chunk with
    an error of its own, until it has answered the first.
    """

    __slots__ = ("_connections", "_is_malformed", "_received_bytes")

    def __init__(self, connections: HttpConnections, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=connections.patience_s,
            logger=connections.logger,
            access_log=cast(logging.Logger, None),
            max_line_size=MAX_LINE_BYTES,
        )
        self._connections = connections
        self._is_malformed = False
        self._received_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection, unless it is one too many."""
        super().connection_made(transport)
        if not self._connections.enter(self, address_of(transport)):
            self.drop()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, unless there is no room for them."""
        if self._is_malformed:
            return
        self._received_bytes += len(data)
        if self._connections.receive(self._received_bytes, len(data)):
            super().data_received(data)
            self._release_errors()
        else:
            self.drop()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the connection no more."""
        self.answered()
        self._connections.leave(self)
        super().connection_lost(exc)

    def _release_errors(self) -> None:
        """Cut the tracebacks of errors that wait for their answer.

        Their frames hold the received bytes and the error itself: without the cut, only the garbage
        collector would free them.
        """
        for message, _ in self._messages:
            error = getattr(message, "exc", None)
            if isinstance(error, BaseException):
                error.with_traceback(None)
                self._is_malformed = True

    def answered(self) -> None:
        """Forget the bytes of requests that were answered."""
        self._connections.release(self._received_bytes)
        self._received_bytes = 0

    def drop(self) -> None:
        """Close the connection at once."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to bytes that are not HTTP, and close the connection."""
        reason = (message or type(exc).__name__)[:_REASON_CHARACTERS]
        self._connections.noisy.warning(
            "malformed", "malformed HTTP request", client=request.remote, reason=reason
        )
        if request.writer.output_size > 0:
            raise ConnectionError("an error after the beginning of the answer")
        answer = malformed(exc)
        answer.force_close()
        return answer


class HttpConnections:
    """HTTP connections of one process.

    Closed connections are counted in *load*, those over the limit in ``refused``. aiohttp's
    keep-alive timeout applies only after the first request; this class closes connections that send
    nothing, or a head byte by byte.
    """

    def __init__(self, limits: LimitSettings, load: Load) -> None:
        self.refused = 0
        #: Rate-limited log for malformed requests, and aiohttp's logger, which leads there.
        self.noisy = NoisyLog(_log)
        self.logger = _quiet_logger(self.noisy)
        self.patience_s = limits.slow_request_s
        self._limits = limits
        self._load = load
        self._counts = ConnectionCounts[HttpConnection](
            limits.max_http_connections, limits.max_connections_per_address
        )
        self._received_bytes = 0
        self._closed = False
        self._servers: list[web.Server] = []
        self._asked: set[RequestHandler] = set()
        self._since_s: dict[RequestHandler, float] = {}  # connections without a request
        self._is_revoked: Callable[[bytes | None], bool] | None = None

    @property
    def open(self) -> set[RequestHandler]:
        """Connections that are open now."""
        return {each for server in self._servers for each in server.connections}

    def tls_connections(self) -> Iterator[HttpTlsConnection]:
        """Iterate over the open connections and their certificates."""
        for each in self.open:
            if each.transport is not None:
                yield HttpTlsConnection(certificate_of(each.transport), each.transport.abort)

    def check_certificates(self, is_revoked: Callable[[bytes | None], bool]) -> None:
        """Close connections whose certificate, in DER, *is_revoked*, at their first request."""
        self._is_revoked = is_revoked

    @property
    def counted(self) -> int:
        """Number of connections that count towards the limits, unfinished handshakes included."""
        return len(self._counts)

    @property
    def received_bytes(self) -> int:
        """Bytes of requests that are being received or served."""
        return self._received_bytes

    def factory(
        self, server: web.Server, *, tls: ContextOf | None = None
    ) -> Callable[[], asyncio.BaseProtocol]:
        """Return a protocol factory for accepted connections of *server*."""
        self._servers.append(server)

        def make() -> asyncio.BaseProtocol:
            connection = HttpConnection(self, server)
            if tls is None:
                return connection
            return counted_tls(connection, tls(), self.enter, self.leave)

        return make

    def close(self) -> None:
        """Refuse all further connections: some may have been accepted that are not yet open."""
        self._closed = True

    def enter(self, connection: HttpConnection, address: str) -> bool:
        """Count an accepted connection of *address*; return False if it is one too many."""
        has_room = self._counts.enter(connection, address)
        if not has_room:
            self._refuse(address)
        return has_room and not self._closed

    def leave(self, connection: HttpConnection) -> None:
        """Count a connection no more."""
        self._counts.leave(connection)

    def receive(self, held_bytes: int, more_bytes: int) -> bool:
        """Count *more_bytes* of a connection; return False if there is no room for its request of
        *held_bytes*.
        """
        self._received_bytes += more_bytes
        self._load.change(more_bytes)
        if held_bytes <= SMALL_BYTES:
            return True
        if self._received_bytes <= MAX_RECEIVED_BYTES and not self._load.is_over:
            return True
        limit = "max_inflight_bytes"
        self._load.refuse(limit, "")
        _noisy.warning("heads", "connection closed: too many bytes in flight", reached=limit)
        return False

    def release(self, held_bytes: int) -> None:
        """Count *held_bytes* no more."""
        self._received_bytes -= held_bytes
        self._load.change(-held_bytes)

    def watched(self, application: web.Application) -> None:
        """Record which connections had a request. Call before *application* starts."""

        @web.middleware
        async def note(request: web.Request, handler: _Handle) -> web.StreamResponse:
            connection: Any = request.protocol
            if connection not in self._asked:
                self._asked.add(connection)
                if request.transport is not None:
                    shown = certificate_of(request.transport)
                    if self._is_revoked is not None and self._is_revoked(shown):
                        _noisy.warning(f"revoked {request.remote}", "revoked certificate refused")
                        request.transport.abort()
                    of_it = request.transport.get_extra_info("socket")
                    find_dead_peer(of_it, within_s=self._limits.dead_peer_s)
            try:
                return await handler(request)
            finally:
                connection.answered()

        application.middlewares.append(note)

    async def sweep(self) -> None:
        """Close connections without a request in time, or up to a quarter earlier. Runs forever."""
        while True:
            await asyncio.sleep(self.patience_s / 8)
            now_s = asyncio.get_running_loop().time()
            open_now = self.open
            self._asked &= open_now
            since_s = {each: self._since_s.get(each, now_s) for each in open_now - self._asked}
            self._since_s = since_s
            for connection, began_s in since_s.items():
                if now_s - began_s >= self.patience_s * 3 / 4:
                    with _noisy.confined("bug", "a slow connection was not closed"):
                        self._drop(connection)

    def _refuse(self, address: str) -> None:
        self.refused += 1
        full = self._counts.exceeds_total(more=0)
        limit = "max_http_connections" if full else "max_connections_per_address"
        _noisy.warning("full", "connection refused", client=address, reached=limit)

    def _drop(self, connection: RequestHandler) -> None:
        limit = "slow_request_s"
        self._load.dropped[limit] += 1
        _noisy.warning("slow", "connection closed: no request received in time", reached=limit)
        cast(HttpConnection, connection).drop()


def _quiet_logger(noisy: NoisyLog) -> logging.Logger:
    """Return a rate-limited logger for aiohttp, which logs a stack trace per malformed request."""

    def log_rarely(record: logging.LogRecord) -> bool:
        noisy.warning("malformed", "malformed HTTP request", reason=record.getMessage())
        return False

    logger = logging.Logger("admin")
    logger.addFilter(log_rarely)
    return logger
