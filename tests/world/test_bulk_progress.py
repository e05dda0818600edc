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


async def _ask(stage: Stage, proxy: int, method: str, request: Any) -> Any:
    """Return the answer to a call of Spark."""
    name = f"spark-{proxy}"
    if (node := stage.world.nodes.get(name)) is None:
        node = stage.world.add(ClientNode, name)
        await node.start()
    host, port = stage.world.proxies[proxy].thrift.split(":")

    async def ask() -> Any:
        client = ThriftClient(*await asyncio.open_connection(host, int(port)), COMPACT)
        answer = await client.call(method, request)
        await client.close()
        return answer

    return await node.do(ask())


async def _report(
    stage: Stage, proxy: int, offset: int, *, group: str = "billing", life: int | None = None
) -> str | None:
    """Report that a bulk reader of the same group has read up to *offset*; return the refusal."""
    offsets = {"orders": {"broker-a_0": offset}}
    lives = None if life is None else {"orders": {"broker-a_0": life}}
    request = consumer.ProgressReport(group, "spark", offsets, lives=lives)
    return (await _ask(stage, proxy, "report", request)).refusal


async def _range(stage: Stage, proxy: int) -> consumer.QueueRange:
    request = consumer.RangesRequest("archive", ["orders"])
    (only,) = await _ask(stage, proxy, "ranges", request)
    return only


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


def test_progress_in_a_former_life_that_another_proxy_reports_is_refused() -> None:
    """Spark names the life: the proxy that takes the report knows nothing of its reads."""
    seen: dict[str, Any] = {}

    async def main(stage: Stage) -> None:
        await stage.start(groups=[ARCHIVE], topics={"orders": 1}, proxies=2)
        await stage.send("orders", ["k"], 10)
        read = await _range(stage, 0)
        await stage.world.delete_topic("orders")
        await asyncio.sleep(1)
        await stage.world.make_topic("orders", 1)
        await asyncio.sleep(1)
        await stage.send("orders", ["k"], 12)
        seen["new"] = await _range(stage, 1)
        seen["old"] = read
        seen["refusal"] = await _report(stage, 1, read.endOffset, group="archive", life=read.life)
        seen["after"] = await _range(stage, 1)

    play(main)
    assert (seen["old"].endOffset, seen["new"].endOffset) == (10, 12)
    assert "which was deleted and created again since" in str(seen["refusal"]), seen
    assert seen["after"].committedOffset is None, seen
