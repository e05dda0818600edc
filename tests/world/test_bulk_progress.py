"""Progress of bulk readers never moves a group past messages that it needs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testkit.simulation.world import ClientNode
from testkit.thrift_client import COMPACT, ThriftClient
from tests.world.stage import Stage, play
from thrift_idl import consumer

TOPIC = {"name": "orders", "order_key": "KEY", "visibility_timeout_s": 5.0}
BILLING, ARCHIVE = ({"name": name, "topics": [TOPIC]} for name in ("billing", "archive"))


async def _report(stage: Stage, proxy: int, offset: int) -> str | None:
    """Report that a bulk reader of the same group has read up to *offset*; return the refusal."""
    node = stage.world.add(ClientNode, f"spark-{proxy}")
    await node.start()
    host, port = stage.world.proxies[proxy].thrift.split(":")

    async def ask() -> str | None:
        request = consumer.ProgressReport("billing", "spark", {"orders": {"broker-a_0": offset}})
        client = ThriftClient(*await asyncio.open_connection(host, int(port)), COMPACT)
        answer = await client.call("report", request)
        await client.close()
        return answer.refusal

    return await node.do(ask())


@pytest.mark.parametrize("beside", ["at another proxy", "while its clients are away"])
def test_a_report_does_not_move_a_group_of_thin_clients(beside: str) -> None:
    said: list[str | None] = []

    async def main(stage: Stage) -> None:
        await stage.start(groups=[BILLING], topics={"orders": 1}, proxies=2)
        stage.habits.stuck.add(("billing", "k0"))
        client = stage.consume("consumer-0", "billing", proxy=0)
        await stage.send("orders", ["k0"], 20)
        await stage.until(lambda: stage.of("handle_start"))
        if beside == "at another proxy":
            said.append(await _report(stage, 1, 20))
            stage.world.proxies[0].kill()
            client.kill()
        else:  # a deployment of the consumers: none is there for some seconds
            client.kill()
            proxy = stage.world.proxies[0].proxy
            lane = next(iter(proxy.lanes))
            await stage.until(lambda: not lane.presence.joined)
            said.append(await _report(stage, 0, 20))
        stage.habits.cure()
        stage.consume("consumer-1", "billing", proxy=1)
        await asyncio.sleep(60)

    assert play(main) == {}
    assert "use a group of your own" in str(said[0])


class _Reader:
    """DDMQ's bulk reader: it names no offsets, so it continues where its group is."""

    def __init__(self, stage: Stage) -> None:
        self._at = stage.world.proxies[0].thrift.split(":")
        self._node = stage.world.add(ClientNode, "ddmq")

    async def start(self) -> None:
        await self._node.start()

    async def ask(self, method: str, request: Any) -> Any:
        async def call() -> Any:
            streams = await asyncio.open_connection(self._at[0], int(self._at[1]))
            client = ThriftClient(*streams, COMPACT)
            answer = await client.call(method, request)
            await client.close()
            return answer

        return await self._node.do(call())

    async def fetch(self) -> tuple[int, list[int]]:
        request = consumer.FetchRequest("ddmq", "archive", "", None, maxLingerTime=500)
        (only,) = (await self.ask("fetch", request)).results
        return only.nextRequestOffset, [each.offset for each in only.messages]

    async def ack(self, offset: int) -> bool:
        offsets = {"orders": {"broker-a_0": offset}}
        return bool(await self.ask("ack", consumer.AckResult("ddmq", "archive", "", offsets)))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside thin clients"])
def test_progress_in_a_former_life_does_not_skip_messages_of_the_next_one(beside: bool) -> None:
    seen: dict[str, Any] = {}

    async def main(stage: Stage) -> None:
        await stage.start(groups=[BILLING, ARCHIVE], topics={"orders": 1})
        if beside:  # another group's reads, over the proxy's only connection to the broker
            stage.consume("consumer-0", "billing")
        await stage.send("orders", ["k"], 10)
        reader = _Reader(stage)
        await reader.start()
        seen["before"] = await reader.fetch()
        # It works on them; meanwhile the topic is deleted, created again and filled.
        await stage.world.delete_topic("orders")
        await asyncio.sleep(1)
        await stage.world.make_topic("orders", 1)
        await asyncio.sleep(1)
        await stage.send("orders", ["k"], 12)
        seen["ack"] = await reader.ack(seen["before"][0])
        seen["after"] = await reader.fetch()

    play(main)
    assert seen["after"][1] == list(range(12)), seen
