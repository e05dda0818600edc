"""A broker that closes has written everything, also for clients that have left."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core.broker import server
from broker_core.client.connection_pool import ConnectionPool
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.tasks import spawn
from testkit.broker_process import run_broker
from testkit.eventually import eventually
from tests.support.bad_requests import AT_BROKER, TOPIC

pytestmark = pytest.mark.sockets  # threads

CHANGES = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
)


def state_of(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir())}


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each sync takes 20 ms. Returns the syncs under way."""
    under_way = [0]
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, slow(getattr(os, name), under_way))
    return under_way


def slow(sync: Callable[[int], None], under_way: list[int]) -> Callable[[int], None]:
    def run(fd: int) -> None:
        under_way[0] += 1
        try:
            time.sleep(0.02)
            sync(fd)
        finally:
            under_way[0] -= 1

    return run


@pytest.mark.parametrize("code", CHANGES, ids=lambda code: code.name)
@pytest.mark.failing_tasks
async def test_nothing_is_written_after_the_close(
    tmp_path: Path, slow_disk: list[int], code: RequestCode
) -> None:
    """Not even for a client that asked for a change and left."""
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
        good = AT_BROKER[code]
        pool = ConnectionPool()
        topic = TOPIC if code is RequestCode.DELETE_TOPIC_IN_BROKER else "new"
        ext = good.ext() | {"topic": topic}
        request = RemotingCommand(code, ext=ext, body=good.content())
        asked = spawn(pool.request(cluster.broker_address, request, timeout_s=20), name="ask")
        await eventually(lambda: slow_disk[0] > 0)
        connected = len(cluster.broker.server.channels)
        await pool.close()
        await asyncio.wait((asked,))
        asked.exception()
        await eventually(lambda: len(cluster.broker.server.channels) < connected)
        await cluster.stop_broker()
        assert slow_disk == [0]
        config = cluster.data / "config"
        left = state_of(config)
        await asyncio.sleep(0.3)  # in which threads could write, which no simulation runs
        assert (slow_disk, state_of(config)) == ([0], left)
        await cluster.start_broker()


async def test_nothing_is_written_after_a_close_during_housekeeping(
    tmp_path: Path, slow_disk: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RETENTION_EVERY_S", 0.01)
    async with run_broker(tmp_path) as cluster:
        await eventually(lambda: slow_disk[0] > 0)
        await cluster.stop_broker()
        assert slow_disk == [0]
        monkeypatch.undo()
        await cluster.start_broker()
