"""A redis-server for one test, whose stored data survives its kills."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError


@dataclass(slots=True)
class RedisServer:
    """A process on a loopback port, and with *tls* (command-line options) on a second one."""

    folder: Path
    port: int
    tls_port: int
    password: str | None = None
    tls: Sequence[str] = ()
    client: Redis = field(init=False)
    _process: asyncio.subprocess.Process | None = None

    def __post_init__(self) -> None:
        self.client = Redis(port=self.port, password=self.password, decode_responses=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def tls_url(self) -> str:
        return f"rediss://127.0.0.1:{self.tls_port}/0"

    async def start(self) -> None:
        """Start the server and wait until it answers."""
        asked = ["--requirepass", self.password] if self.password else []
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        secured = ["--tls-port", str(self.tls_port), "--tls-auth-clients", "no", *self.tls]
        secured = secured if self.tls else []
        with (self.folder / "redis.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                "redis-server", *place, *durable, *asked, *secured, stdout=log, stderr=log
            )
        async with asyncio.timeout(30):
            while not await self._answers():
                assert self._process.returncode is None, (self.folder / "redis.log").read_text()
                await asyncio.sleep(0.01)

    async def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    def stand_still(self) -> None:
        """Stop answering until ``go_on``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue after ``stand_still``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def _answers(self) -> bool:
        try:
            return bool(await self.client.ping())
        except RedisError:
            return False


@asynccontextmanager
async def redis_server(
    folder: Path, *, password: str | None = None, tls: Sequence[str] = ()
) -> AsyncIterator[RedisServer]:
    """Return a server that ends with the test."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # nothing else runs yet
    with socket.socket() as one, socket.socket() as another:
        for free in (one, another):
            free.bind(("127.0.0.1", 0))
        port, tls_port = (free.getsockname()[1] for free in (one, another))
    server = RedisServer(folder, port, tls_port, password, tls)
    try:
        await server.start()
        yield server
    finally:
        await server.client.aclose()
        await server.kill()
