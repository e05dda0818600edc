"""Messages of our broker found by mqadmin: by key, unique key, id, offset and time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.broker_process import Cluster, run_broker
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.admin_tool import AdminTool, admin_tool

pytestmark = [
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.feature("admin: messages by key, id, offset; resets to a time"),
]
TOPIC = Topic("orders")


@dataclass(slots=True)
class Site:
    cluster: Cluster
    tool: AdminTool
    queue: QueueName

    async def run(self, *words: str) -> str:
        return await self.tool.run(*words, "-n", self.cluster.nameserver)


@pytest.fixture
async def site(version: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with (
        admin_tool(version, tmp_path / "home") as tool,
        run_broker(tmp_path / "broker") as cluster,
    ):
        (queue, *_) = await cluster.create_topic(TOPIC)
        yield Site(cluster, tool, queue)


async def test_messages_are_found(version: str, site: Site) -> None:
    client = await site.cluster.client()
    places = []
    for n in range(5):
        message = OutgoingMessage(
            TOPIC, b"body %d" % n, key=f"order-{n % 2} all", tag="red",
            properties={"UNIQ_KEY": f"7F000001000018B4AAC2000000000{n:03d}"},
        )  # fmt: skip
        places.append((await client.send(site.queue, message)).offset_message_id)

    printed = await site.run("queryMsgByKey", "-t", TOPIC, "-k", "order-1")
    for n in range(5):
        assert (f"7F000001000018B4AAC2000000000{n:03d}" in printed) == (n % 2 == 1), printed
    printed = await site.run(
        "queryMsgByUniqueKey", "-t", TOPIC, "-i", "7F000001000018B4AAC2000000000003"
    )
    assert "order-1" in printed, printed
    assert "Queue Offset:" in printed
    topic = ("-t", TOPIC) if version.startswith("5") else ()  # 4.9 has no such option here
    printed = await site.run("queryMsgById", *topic, "-i", places[2])
    assert "7F000001000018B4AAC2000000000002" in printed, printed
    where = ("-b", site.queue.broker, "-i", str(site.queue.queue_id), "-o", "4")
    printed = await site.run("queryMsgByOffset", "-t", TOPIC, *where)
    assert "7F000001000018B4AAC2000000000004" in printed, printed
    printed = await site.run("printMsg", "-t", TOPIC, "-d", "true")
    for n in range(5):
        assert f"body {n}" in printed, printed
    missing = await site.run("queryMsgByKey", "-t", TOPIC, "-k", "missing")
    assert "7F000001" not in missing


async def test_a_group_is_reset_to_a_time(site: Site) -> None:
    client = await site.cluster.client()
    for _ in range(5):
        await client.send(site.queue, OutgoingMessage(TOPIC, b"x"))
    group = Group("billing")
    await client.commit_offset(group, site.queue, 5)
    printed = await site.run("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", "0")
    assert await client.committed_offset(group, site.queue) == 0, printed
