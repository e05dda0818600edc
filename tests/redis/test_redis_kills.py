"""When a proxy is killed while it writes to Redis, another one continues in order and without a
loss.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from testkit.processes import Child, Children
from tests.redis.redis_server import redis_server

pytestmark = pytest.mark.sockets

KEYS = [f"k{number % 20}" for number in range(200)]


async def test_the_queues_of_a_killed_proxy_continue_in_order_at_another_proxy(
    tmp_path: Path,
) -> None:
    async with redis_server(tmp_path / "redis") as server:
        commands = [["RPUSH", "seen:${key}", "${body.n}"]]
        topic = {"actions": [{"redis": {"url": server.url, "commands": commands}}]}
        async with run_gateway(tmp_path, queues=4, topic=topic) as gateway:
            with Children(tmp_path / "proxies") as children:
                first, second = await _start(gateway, children), await _start(gateway, children)
                await eventually(lambda: len(_owners(gateway)) == 2, within_s=30)
                for _ in range(3):
                    await gateway.send(KEYS)
                before = len(gateway.events("finish"))
                await eventually(lambda: len(gateway.events("finish")) > before + 20, within_s=30)
                await asyncio.to_thread(first.kill)
                await gateway.send(KEYS)
                await eventually(gateway.all_finished, within_s=60)
                assert await asyncio.to_thread(second.terminate) == 0
            numbers = []
            for key in set(KEYS):
                of_key = list(map(int, await server.client.lrange(f"seen:{key}", 0, -1)))
                # Messages that the killed proxy wrote but did not record are written again, in
                # order.
                firsts = list(dict.fromkeys(of_key))
                assert firsts == sorted(firsts)
                numbers += firsts
            assert len(numbers) == 800
            assert gateway.verify().violations == {}


async def _start(gateway: Gateway, children: Children) -> Child:
    path = children.folder / "proxy.yaml"
    path.write_text(yaml.safe_dump({**gateway.settings, "nameserver": gateway.cluster.nameserver}))
    history = ("--history", gateway.histories)
    ports = ("--thrift-port", 0, "--http-port", 0)
    child = children.start("proxy", "--settings", path, *ports, *history)
    await asyncio.to_thread(child.ready)
    return child


def _owners(gateway: Gateway) -> set[str]:
    """Return the proxies that own a queue."""
    held = {each["queue"]: each["owner"] for each in gateway.events("own+")}
    return set(held.values())
