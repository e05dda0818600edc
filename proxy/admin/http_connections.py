"""Limits of HTTP connections: their number, and the time until the first request is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from broker_core.refused_connection import RefusedConnection
from proxy.downstream.port.load import Load
from proxy.net.dead_peers import find_dead_peer
from proxy.observe.logs import NoisyLog
from proxy.settings.proxy_settings import LimitSettings

_noisy = NoisyLog(structlog.get_logger("admin"))

_Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpConnections:
    """HTTP connections of one process.

    Closed connections are counted in *load*, those over the limit in ``refused``. aiohttp's
    keep-alive timeout applies only after the first request; this class closes connections that send
    nothing, or a head byte by byte.
    """

    def __init__(self, limits: LimitSettings, load: Load) -> None:
        self.refused = 0
        self.patience_s = limits.slow_request_s
        self._limits = limits
        self._load = load
        self._servers: list[web.Server] = []
        self._asked: set[RequestHandler] = set()
        self._since_s: dict[RequestHandler, float] = {}  # connections without a request

    @property
    def open(self) -> set[RequestHandler]:
        """Connections that are open now."""
        return {each for server in self._servers for each in server.connections}

    def factory(self, server: web.Server) -> Callable[[], asyncio.BaseProtocol]:
        """Return a protocol factory for connections of *server*."""
        self._servers.append(server)

        def take() -> asyncio.BaseProtocol:
            if sum(len(each.connections) for each in self._servers) < self._most:
                return server()
            self.refused += 1
            _noisy.warning("full", "connection refused", reached="max_http_connections")
            return RefusedConnection()

        return take

    def watched(self, application: web.Application) -> None:
        """Record which connections had a request. Call before *application* starts."""

        @web.middleware
        async def note(request: web.Request, handler: _Handle) -> web.StreamResponse:
            connection: Any = request.protocol
            if connection not in self._asked:
                self._asked.add(connection)
                if request.transport is not None:
                    of_it = request.transport.get_extra_info("socket")
                    find_dead_peer(of_it, within_s=self._limits.dead_peer_s)
            return await handler(request)

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
                    self._drop(connection)

    @property
    def _most(self) -> int:
        return self._limits.max_http_connections

    def _drop(self, connection: RequestHandler) -> None:
        limit = "slow_request_s"
        self._load.dropped[limit] += 1
        _noisy.warning("slow", "connection closed: no request received in time", reached=limit)
        transport = connection.transport
        connection.force_close()
        if transport is not None:
            transport.abort()
