"""Sends and commits of many queues by one request, each stored or refused by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_core.broker.together import TogetherProcessor
from broker_core.client import BrokerClient, SendReceipt
from broker_core.errors import BrokerError, NotConnected
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.signing import Credentials
from broker_core.remoting_channel import RemotingChannel
from testkit.broker_process import Cluster, run_broker

ORDERS, BILLING = Topic("orders"), Group("billing")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Requests of many entries that arrive, by code."""
    seen: Counter[int] = Counter()
    real = TogetherProcessor.handlers

    def handlers(self: TogetherProcessor) -> Any:
        def counted(handle: Any) -> Any:
            def handler(request: RemotingCommand, channel: RemotingChannel) -> Any:
                seen[request.code] += 1
                return handle(request, channel)

            return handler

        return {code: counted(handle) for code, handle in real(self).items()}

    monkeypatch.setattr(TogetherProcessor, "handlers", handlers)
    return seen


@pytest.fixture
async def cluster(tmp_path: Path, requests: Counter[int]) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as running:
        yield running


def message(topic: Topic, body: bytes) -> OutgoingMessage:
    return OutgoingMessage(topic, body)


async def stored(client: BrokerClient, queue: QueueName) -> list[bytes]:
    pulled = await client.pull(queue, group=BILLING, offset=0, suspend_ms=0)
    return [each.body for each in pulled.messages]


async def test_sends_of_one_pass_go_together(cluster: Cluster, requests: Counter[int]) -> None:
    queues = await cluster.create_topic(ORDERS, queues=6)
    client = await cluster.client()
    for _ in range(2):
        sends = [client.send_together(queue, message(ORDERS, b"x")) for queue in queues]
        receipts = await asyncio.gather(*sends)
    assert [(each.queue, each.offset) for each in receipts] == [(queue, 1) for queue in queues]
    assert len({each.offset_message_id for each in receipts}) == 6
    assert requests == {RequestCode.SEND_MESSAGES: 2}
    assert [await stored(client, queue) for queue in queues] == [[b"x", b"x"]] * 6


async def test_a_refused_entry_concerns_its_queue_alone(
    cluster: Cluster, requests: Counter[int]
) -> None:
    one, two = await cluster.create_topic(ORDERS, queues=2)
    client = await cluster.client()
    life = await client.life(one)
    assert life is not None
    results = await asyncio.gather(
        client.send_together(one, message(ORDERS, b"former"), life=life - 1),
        client.send_together(one._replace(queue_id=7), message(ORDERS, b"beyond")),
        client.send_together(one, message(ORDERS, b"x" * (5 << 20))),
        client.send_together(
            QueueName(Topic("%RETRY%g"), "broker-a", 0), message(Topic("%RETRY%g"), b"retry")
        ),
        client.send_together(two, message(ORDERS, b"there"), life=life),
        return_exceptions=True,
    )
    assert [each.code if isinstance(each, BrokerError) else 0 for each in results] == [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.MESSAGE_ILLEGAL,
        0,
    ]
    assert isinstance(results[4], SendReceipt)
    assert (await stored(client, one), await stored(client, two)) == ([], [b"there"])


async def test_commits_of_one_pass_go_together_and_are_fenced_each_by_itself(
    cluster: Cluster, requests: Counter[int]
) -> None:
    queues = await cluster.create_topic(ORDERS, queues=4)
    client = await cluster.client()
    life = await client.life(queues[0])
    assert life is not None
    await client.commit_offset(BILLING, queues[1], 3, epoch=9)
    assert requests == {}, "one alone is a request of its own"
    results = await asyncio.gather(
        client.commit_offset(BILLING, queues[0], 1, epoch=1, life=life),
        client.commit_offset(BILLING, queues[1], 2, epoch=8),
        client.commit_offset(BILLING, queues[2], 5, life=life + 1),
        client.commit_offset(BILLING, queues[3], -1),
        return_exceptions=True,
    )
    assert requests == {RequestCode.COMMIT_OFFSETS: 1}
    assert results[0] is None
    for result, reason in zip(
        results[1:], ("owned in epoch 9", "is now in life", "expected 0 or more"), strict=True
    ):
        assert isinstance(result, BrokerError)
        assert reason in result.remark
    offsets = [await client.committed_offset(BILLING, queue) for queue in queues[:3]]
    assert offsets == [1, 3, None]


async def test_a_broker_without_them_gets_requests_of_one_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TogetherProcessor, "handlers", lambda self: {})
    async with run_broker(tmp_path) as cluster:
        queues = await cluster.create_topic(ORDERS, queues=3)
        client = await cluster.client()
        for n in range(2):
            commits = [client.commit_offset(BILLING, queue, n) for queue in queues]
            sends = [client.send_together(queue, message(ORDERS, b"x")) for queue in queues]
            receipts = await asyncio.gather(*sends)
            await asyncio.gather(*commits)
            assert [each.offset for each in receipts] == [n] * 3
        assert [await client.committed_offset(BILLING, each) for each in queues] == [1, 1, 1]


async def test_each_entry_needs_its_own_rights(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    root, shop = Credentials("root-account", "root-secret"), Credentials("shop-acc", "shop-secret")
    content = [
        {"accessKey": root.access_key, "secretKey": root.secret, "admin": True},
        {
            "accessKey": shop.access_key,
            "secretKey": shop.secret,
            "topicPerms": ["orders=PUB|SUB"],
            "groupPerms": ["billing=SUB"],
        },
    ]
    accounts.write_text(yaml.safe_dump({"accounts": content}))
    async with run_broker(tmp_path / "broker", acl=accounts) as cluster:
        admin = await cluster.client("root", credentials=root)
        for topic in (ORDERS, Topic("secret")):
            await admin.create_topic(topic, queues=1)
        orders, secret = (QueueName(Topic(each), "broker-a", 0) for each in ("orders", "secret"))
        client = await cluster.client("shop", credentials=shop)
        results = await asyncio.gather(
            client.send_together(orders, message(ORDERS, b"mine")),
            client.send_together(secret, message(Topic("secret"), b"forged")),
            client.commit_offset(BILLING, orders, 1),
            client.commit_offset(BILLING, secret, 1),
            client.commit_offset(Group("other"), orders, 1),
            return_exceptions=True,
        )
        refused = [each.code if isinstance(each, BrokerError) else 0 for each in results]
        assert refused == [0, 16, 0, 16, 16]
        assert await stored(admin, secret) == []
        assert await admin.committed_offset(Group("other"), orders) in (None, 0)


async def test_a_lost_connection_fails_each_of_them(cluster: Cluster) -> None:
    queues = await cluster.create_topic(ORDERS, queues=3)
    client = await cluster.client()
    await client.queues(ORDERS)
    await cluster.stop_broker(crash=True)
    results = await asyncio.gather(
        *(client.commit_offset(BILLING, queue, 1) for queue in queues), return_exceptions=True
    )
    assert [type(each) for each in results] == [NotConnected] * 3
    assert len({id(each) for each in results}) == 3
    await cluster.start_broker()
