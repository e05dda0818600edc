"""The HTTP port: /healthz (the process answers), /readyz (it can serve), /metrics, and the
operations of the desks, which /api/openapi.json describes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from proxy.admin.openapi import document
from proxy.admin.operations import TEXT, Call, Operation, get
from proxy.admin.routes import application
from proxy.admin.shared import of_any_worker
from proxy.admin.snapshots import GroupsView

VERSION = "1"
#: An order key of 64 KiB, percent-encoded, stands behind a ``?``.
MAX_LINE_BYTES = 1 << 20


class AdminHttp:
    """One per process. ``not_ready`` gives the reason why not, None if ready."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        not_ready: Callable[[], Awaitable[str | None]],
        groups: Callable[[], dict[str, Any]],
        operations: Sequence[Operation] = (),
    ) -> None:
        self._registry = registry
        self._not_ready = not_ready
        self._groups = groups
        self._operations = [*self._own(), *operations]
        self._document = document(self._operations, version=VERSION)
        self._runner = _runner(self._operations)
        self._shared: web.AppRunner | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen on *host*:*port* (0: any free one); returns the port. Raises OSError."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def share(self, workers: Sequence[str]) -> None:
        """Connections will come by ``adopt``, of people who asked any of *workers*."""
        self._shared = _runner(of_any_worker(self._operations, workers))
        await self._shared.setup()

    async def adopt(self, connection: socket.socket) -> None:
        """Serve somebody who came to the port of all workers. Caller: after ``share``."""
        server = None if self._shared is None else self._shared.server
        if server is None:
            connection.close()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(server, connection)
        except OSError:
            connection.close()

    async def close(self) -> None:
        """Stop listening."""
        if self._shared is not None:
            await self._shared.cleanup()
        await self._runner.cleanup()

    def _own(self) -> list[Operation]:
        return [
            get("/healthz", "Does the process answer?", self._healthz, media=TEXT),
            get("/readyz", "Can it serve?", self._readyz, media=TEXT, errors=(503,)),
            get("/metrics", "Metrics for Prometheus.", self._metrics, media=TEXT),
            get("/api/openapi.json", "This document.", self._openapi, answer=dict[str, Any]),
            get(
                "/api/groups",
                "The groups, and what this proxy holds of them.",
                self._api_groups,
                answer=GroupsView,
            ),
        ]

    async def _healthz(self, _call: Call) -> str:
        return "ok\n"

    async def _readyz(self, _call: Call) -> web.Response:
        reason = await self._not_ready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"not ready: {reason}\n")

    async def _metrics(self, _call: Call) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _openapi(self, _call: Call) -> dict[str, Any]:
        return self._document

    async def _api_groups(self, _call: Call) -> dict[str, Any]:
        return self._groups()


def _runner(operations: Sequence[Operation]) -> web.AppRunner:
    return web.AppRunner(application(operations), access_log=None, max_line_size=MAX_LINE_BYTES)
