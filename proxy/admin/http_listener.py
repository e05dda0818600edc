"""Listens for HTTP on one address."""

from __future__ import annotations

import asyncio

from aiohttp import web

from broker_core.stop_accepting import stop_accepting
from broker_core.tasks import cancel_and_wait, spawn
from proxy.admin.http_connections import HttpConnections
from proxy.net.counted_tls import ContextOf


def runner_of(application: web.Application, connections: HttpConnections) -> web.AppRunner:
    """Return a runner of *application*, whose connections are *connections*."""
    connections.watched(application)
    return web.AppRunner(application, access_log=None)  # its server makes no connections itself


def server_of(runner: web.AppRunner) -> web.Server:
    """Return the server of a runner that was set up."""
    assert runner.server is not None
    return runner.server


class HttpListener:
    """Serves what *runner* runs, on connections limited by *connections*."""

    def __init__(self, runner: web.AppRunner, connections: HttpConnections) -> None:
        self._runner = runner
        self._connections = connections
        self._listeners: list[asyncio.Server] = []
        self._sweep: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int, *, tls: ContextOf | None = None) -> int:
        """Listen on *host*:*port* (0 for any free port) and return the port. Raises OSError."""
        await self._runner.setup()
        listener = await asyncio.get_running_loop().create_server(
            self._connections.factory(server_of(self._runner), tls=tls), host, port
        )
        self._listeners.append(listener)
        self._sweep = spawn(self._connections.sweep(), name="slow HTTP requests")
        return int(listener.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Accept no further connections."""
        for listener in self._listeners:
            stop_accepting(listener)
        self._listeners.clear()

    async def close(self) -> None:
        """Stop, and end all connections."""
        self.stop()
        self._connections.close()
        await asyncio.sleep(0)
        await cancel_and_wait(self._sweep)
        await self._runner.cleanup()
