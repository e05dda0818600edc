"""The HTTP port: /healthz, /readyz, /metrics, and the admin API described by /api/openapi.json."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any

from aiohttp import web

from broker_core.tls import TlsConnection
from proxy.admin.guard import Guard
from proxy.admin.http_connections import HttpConnections
from proxy.admin.http_listener import HttpListener, runner_of, server_of
from proxy.admin.metric_families import Scrape
from proxy.admin.openapi import document
from proxy.admin.operations import TEXT, Call, Operation, get
from proxy.admin.routes import application
from proxy.admin.shared import of_any_worker
from proxy.admin.snapshots import GroupsView
from proxy.downstream.port.load import Load
from proxy.net.counted_tls import ContextOf
from proxy.settings.proxy_settings import LimitSettings

VERSION = "1"


class AdminHttp:
    """The HTTP port of a process. ``not_ready`` returns why it is not ready, None if it is."""

    def __init__(
        self,
        *,
        scrape: Scrape,
        not_ready: Callable[[], Awaitable[str | None]],
        groups: Callable[[], Awaitable[dict[str, Any]]],
        guard: Guard,
        operations: Sequence[Operation] = (),
        connections: HttpConnections | None = None,
    ) -> None:
        self._scrape = scrape
        self._not_ready = not_ready
        self._groups = groups
        self._guard = guard
        self._operations = [*self._own(), *operations]
        if connections is None:
            limits = LimitSettings()
            connections = HttpConnections(limits, Load(limits.max_inflight_bytes))
        self._connections = connections
        self._listener = HttpListener(self._made(self._operations), connections)
        self._shared: web.AppRunner | None = None
        self._passed: Callable[[], asyncio.BaseProtocol] | None = None
        self._tls: ContextOf | None = None

    async def listen(self, host: str, port: int, *, tls: ContextOf | None = None) -> int:
        """Listen on *host*:*port* (0 for any free port) and return the port. Raises OSError."""
        self._tls = tls
        return await self._listener.listen(host, port, tls=tls)

    def tls_connections(self) -> list[TlsConnection]:
        """Return the open connections."""
        return list(self._connections.tls_connections())

    def check_certificates(self, is_revoked: Callable[[bytes | None], bool]) -> None:
        """Close new connections whose certificate, in DER, *is_revoked*."""
        self._connections.check_certificates(is_revoked)

    async def share(self, workers: Sequence[str]) -> None:
        """Accept connections by ``accept_passed``, made to the address shared by *workers*."""
        self._shared = self._made(of_any_worker(self._operations, workers))
        await self._shared.setup()
        self._passed = self._connections.factory(server_of(self._shared), tls=self._tls)

    async def accept_passed(self, connection: socket.socket) -> None:
        """Serve a connection made to the shared port. Requires ``share``."""
        if self._passed is None or self._shared is None or self._shared.server is None:
            connection.close()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._passed, connection)
        except OSError:
            connection.close()

    async def close(self) -> None:
        """Stop listening."""
        self._listener.stop()
        self._connections.close()
        if self._shared is not None:
            await self._shared.cleanup()
        await self._listener.close()

    def _own(self) -> list[Operation]:
        return [
            get("/healthz", "Report that the process answers.", self._healthz, media=TEXT),
            get(
                "/readyz",
                "Report whether the proxy can serve clients.",
                self._readyz,
                media=TEXT,
                errors=(503,),
            ),
            get("/metrics", "Return metrics for Prometheus.", self._metrics, media=TEXT),
            get("/api/openapi.json", "Return this document.", self._openapi, answer=dict[str, Any]),
            get(
                "/api/groups",
                "List the groups with their topics and the queues owned by this proxy.",
                self._api_groups,
                answer=GroupsView,
            ),
        ]

    def _made(self, operations: Sequence[Operation]) -> web.AppRunner:
        patience_s = self._connections.patience_s
        served = application(operations, self._guard, body_within_s=patience_s)
        return runner_of(served, self._connections)

    async def _healthz(self, _call: Call) -> str:
        return "ok\n"

    async def _readyz(self, _call: Call) -> web.Response:
        reason = await self._not_ready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"not ready: {reason}\n")

    async def _metrics(self, _call: Call) -> web.Response:
        return await self._scrape.response()

    async def _openapi(self, _call: Call) -> dict[str, Any]:
        return self._document

    @cached_property
    def _document(self) -> dict[str, Any]:
        """The OpenAPI document, built on first use, which takes a tenth of a second."""
        return document(self._operations, version=VERSION)

    async def _api_groups(self, _call: Call) -> dict[str, Any]:
        return await self._groups()
