"""Connections to the HTTP port: how many, and for how long one may be without a whole request."""

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
    """Of one process. What is ended counts in *load*; ``refused`` are those over the limit.

    Once a connection has had a request aiohttp's own time for silence holds; before that, whoever
    sends a head byte by byte, or nothing, would be let do so for ever.
    """

    def __init__(self, limits: LimitSettings, load: Load) -> None:
        self.refused = 0
        self.patience_s = limits.slow_request_s
        self._limits = limits
        self._load = load
        self._servers: list[web.Server] = []
        self._asked: set[RequestHandler] = set()
        self._since_s: dict[RequestHandler, float] = {}  # of those that have not

    def factory(self, server: web.Server) -> Callable[[], asyncio.BaseProtocol]:
        """What makes the protocols of connections that *server* serves."""
        self._servers.append(server)

        def take() -> asyncio.BaseProtocol:
            if sum(len(each.connections) for each in self._servers) < self._most:
                return server()
            self.refused += 1
            _noisy.warning("full", "connection refused", reached="max_http_connections")
            return RefusedConnection()

        return take

    def watched(self, application: web.Application) -> None:
        """Have *application* say which connections have had a request. Caller: before it starts."""

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
        """End those that have had no request in time, or up to a quarter earlier; for ever."""
        while True:
            await asyncio.sleep(self.patience_s / 8)
            now_s = asyncio.get_running_loop().time()
            open_now = {each for server in self._servers for each in server.connections}
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
        _noisy.warning("slow", "connection closed: no request came in time", reached=limit)
        transport = connection.transport
        connection.force_close()
        if transport is not None:
            transport.abort()
