"""Verdicts that must not count: late ones, repeated ones, and those of strangers."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_core.client import BrokerClient
from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.thrift_client import ThriftClient, acked
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, token_settings
from thrift_idl import consumer, producer


async def _pulled(client: ThriftClient, **fields: Any) -> Any:
    """Return the first answer with messages."""
    async with asyncio.timeout(60):
        while not (got := await client.pull(GROUP, linger_ms=500, **fields)).messages:
            pass
    return got


async def _send(client: ThriftClient, *bodies: bytes, token: str | None = None) -> None:
    for body in bodies:
        sent = producer.Message(topic=TOPIC, key="k", body=body, token=token)
        assert (await client.call("sendSync", sent, 30_000)).code == 0


@attack("an ack of a lease that has ended, or a repeated ack", answer="finishes nothing")
async def late_acks(at: Installation) -> str:
    rule = {"name": TOPIC, "order_key": "KEY", "visibility_timeout_s": 2}
    at.start_all(settings={"groups": [{"name": GROUP, "topics": [rule]}]})
    client = await at.connect()
    await _send(client, b"0", b"1")
    first = await _pulled(client, maxBatchSize=1)
    again = await _pulled(client, maxBatchSize=1)  # after the lease has ended
    assert [each.value for each in (*first.messages, *again.messages)] == [b"0", b"0"]
    late = await client.settle(GROUP, acked(first))
    assert len(late) == 1, "the late ack counted"
    assert await client.settle(GROUP, acked(again)) == []
    repeated = await client.settle(GROUP, acked(again))
    assert len(repeated) == 1, "the repeated ack counted"
    following = await _pulled(client, maxBatchSize=1)
    assert [each.value for each in following.messages] == [b"1"]
    client.abort()
    return "2 of 2 acks without effect; the key continued with its next message"


@attack(
    "acks of another client's leases in a pull refused because of load",
    answer="401, nothing is settled; those of its owner are applied",
)
async def acks_under_load(at: Installation) -> str:
    limits = {"max_inflight_bytes": 50_000}
    at.start_all(settings={"limits": limits, **token_settings("token")})
    client = await at.connect()
    await _send(client, b"0", token="token")
    got = await _pulled(client, token="token")
    # A request that never ends holds all the room there is.
    _, writer = await at.open(at.thrift)
    writer.write((60_000).to_bytes(4) + b"\x82\x21")
    codes = []
    async with asyncio.timeout(30):
        for token in ("wrong", "token"):
            while True:
                try:
                    await client.pull(GROUP, acks=[acked(got)], token=token)
                except consumer.PullException as error:
                    codes.append(error.code)
                    break
    assert codes == [401, 503], codes
    writer.close()
    settle = consumer.AckRequest(GROUP, [acked(got)], token="token")
    left = (await client.call("settle", settle)).notHeld
    assert len(left) == 1, "the owner's ack was not applied"
    client.abort()
    return "401 without effect; 503 with the owner's ack applied"


@attack(
    "a message that claims to come from such a topic, to be redriven into it",
    answer="the redrive stops and reports it",
)
async def forged_origin(at: Installation) -> str:
    at.start_all()
    dead = Topic(f"%DLQ%{GROUP}")
    audit = "%AUDIT%orderlane"
    broker = BrokerClient(nameservers=[at.nameserver], client_id="x@1#1", request_timeout_s=30)
    await broker.create_topic(dead, queues=1)
    (queue,) = await broker.queues(dead)
    forged = OutgoingMessage(dead, b"{}", properties={"DLQ_ORIGIN_TOPIC": audit})
    await broker.send(queue, forged)
    ended = await asyncio.to_thread(
        at.children.run,
        *("dead-letters", "redrive", GROUP, "--reason", "attack", "--yes", "--http", at.http),
    )
    await broker.close()
    assert ended.code == 2, ended
    assert "original topic is unknown" in ended.err, ended
    return f"exit code {ended.code}: {(ended.err or ended.out).strip().splitlines()[-1][:100]}"
