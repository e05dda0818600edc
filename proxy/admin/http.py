"""Routes: /healthz (the process answers), /readyz (it can serve), /metrics, /api/groups; keys and
dead letters in files of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from proxy.admin.dead_letters import dead_letter_routes
from proxy.admin.keys import key_routes
from proxy.upstream.dead_letter_desk import DeadLetterDesk
from proxy.upstream.key_desk import KeyDesk


class AdminHttp:
    """One per process. ``not_ready`` gives the reason why not, None if ready."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        not_ready: Callable[[], Awaitable[str | None]],
        groups: Callable[[], dict[str, Any]],
        keys: KeyDesk | None = None,
        dead_letters: DeadLetterDesk | None = None,
    ) -> None:
        self._registry = registry
        self._not_ready = not_ready
        self._groups = groups
        application = web.Application()
        application.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/api/groups", self._api_groups),
                *([] if keys is None else key_routes(keys)),
                *([] if dead_letters is None else dead_letter_routes(dead_letters)),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None)

    async def listen(self, host: str, port: int) -> int:
        """Listen on *host*:*port* (0: any free one); returns the port. Raises OSError."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = await self._not_ready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"not ready: {reason}\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _api_groups(self, _request: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(self._groups()), content_type="application/json")
