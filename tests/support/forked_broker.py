"""Brokers as processes that start in milliseconds: forks of a process with all imports done.

``python -m tests.support.forked_broker`` reads a line of settings from stdin, forks a broker, and
reads the next line when that broker has ended. Events go to stdout, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import structlog

from broker_core.broker import Broker, BrokerSettings
from broker_core.broker import server as broker_server
from broker_core.broker.replicas import replication
from broker_core.broker.replicas import slave as broker_slave
from broker_core.store import message_store

ROOT = Path(__file__).parents[2]


class ForkedBroker:
    """The test's side: starts one broker at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = 0

    async def start(self, **settings: Any) -> None:
        """Fork a broker without waiting until it is ready."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(settings, default=str) + b"\n")
        self.pid = (await self._event())["pid"]

    async def ready(self) -> str:
        """Return the broker's address when it is ready."""
        event = await self._event()
        assert "ready" in event, f"the broker ended with status {event['ended']}"
        return str(event["ready"])

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(self.pid, number)

    async def kill(self) -> None:
        """Send SIGKILL and return when the process has ended."""
        self.signal(signal.SIGKILL)
        while "ended" not in await self._event():
            pass
        self.pid = 0

    async def _event(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 30)
        return dict(orjson.loads(line))

    async def _end(self) -> None:
        if self.pid:
            self.signal(signal.SIGKILL)
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def forked_brokers() -> AsyncIterator[ForkedBroker]:
    """Run the process that forks."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.forked_broker",
        cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    broker = ForkedBroker(process)
    try:
        yield broker
    finally:
        await broker._end()


def _tell(**event: object) -> None:
    os.write(1, orjson.dumps(event) + b"\n")


def _serve_forks() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    # Lets kills hit checkpoints, saves of the tables and deletions, not only sends.
    with (
        patch.object(message_store, "CHECKPOINT_EVERY_S", 0.03),
        patch.object(broker_slave, "AGAIN_S", 0.1),
        patch.object(replication, "SILENT_NS", 1_500_000_000),
        patch.multiple(broker_server, SAVE_EVERY_S=0.02, RETENTION_EVERY_S=0.02),
    ):
        while line := sys.stdin.buffer.readline():
            pid = os.fork()
            if pid == 0:
                asyncio.run(_serve(orjson.loads(line)))
                os._exit(0)
            _tell(pid=pid)
            _tell(ended=os.waitpid(pid, 0)[1])


async def _serve(settings: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    loop.add_reader(0, os._exit, 1)  # end of stdin: the test has ended
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    broker = Broker(BrokerSettings(**settings))
    await broker.start()
    _tell(ready=broker.address)
    await stop.wait()
    await broker.close()


if __name__ == "__main__":
    _serve_forks()
