"""Messages that a client encoded itself, over loopback, to queues in memory."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from broker_core.client import SendStatus
from broker_core.client.batch_limits import MOST_ENCODED
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    NotConnected,
    RemotingError,
    RequestTimeout,
)
from broker_core.names import QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from testkit.lanes import Notes
from testkit.thrift_client import ThriftClient
from tests.support.fake_broker_client import FakeBrokerClient, queue
from tests.support.producing import counted, sending
from thrift_idl import producer


def encoded(*bodies: bytes, **properties: str) -> bytes:
    """Return messages with the ids 0, 1 and following."""
    return encode_batch(
        OutgoingMessage(
            Topic("orders"), body, key="k", properties={**properties, "UNIQ_KEY": str(n)}
        )
        for n, body in enumerate(bodies)
    )


async def send(client: ThriftClient, *bodies: bytes, **fields: Any) -> Any:
    content = {"topic": "orders", "qid": "broker-a_1", "count": len(bodies)}
    batch = producer.EncodedBatch(**{**content, "body": encoded(*bodies), **fields})
    return await client.call("sendEncoded", batch)


def bodies(broker: FakeBrokerClient) -> list[bytes]:
    """Return the bodies of all messages, in sending order."""
    return [entry.body for _, entries in broker.encoded for entry in entries]


async def test_messages_reach_the_queue_that_they_name_as_they_are() -> None:
    broker = FakeBrokerClient(orders=3)
    async with sending(broker) as client:
        result = await send(client, b"1", b"2", timeoutMs=2500)
    assert (result.code, result.msg, result.stored) == (0, None, None)
    ((place, entries),) = broker.encoded
    assert place == queue(1)
    assert [entry.properties for entry in entries] == [
        b"UNIQ_KEY\x010\x02KEYS\x01k\x02",
        b"UNIQ_KEY\x011\x02KEYS\x01k\x02",
    ]
    assert broker.timeouts == [pytest.approx(2.5, abs=0.5)]


async def test_without_a_queue_the_proxy_chooses_one_for_all() -> None:
    broker = FakeBrokerClient(orders=3)
    async with sending(broker) as client:
        for _ in range(4):
            assert (await send(client, b"1", b"2", qid=None)).code == 0
    assert [place.queue_id for place, _ in broker.encoded] == [0, 1, 2, 0]


async def test_a_queue_that_was_selected_among_other_queues_is_refused() -> None:
    """By the names that the proxy returns; it asks for the route again before it refuses."""
    broker = FakeBrokerClient(orders=3)
    async with sending(broker) as client:
        queues = await client.call("writableQueues", producer.QueuesRequest("orders"))
        assert (
            await send(client, b"1", route=zlib.crc32(",".join(queues.qids).encode()))
        ).code == 0
        result = await send(client, b"2", route=7)
        reason = "other queues than those among which queue broker-a_1 was selected"
        assert (result.code, result.stored, reason in result.msg) == (11, 0, True), result.msg
        assert (await send(client, b"3")).code == 0  # by a client of an earlier version
    assert bodies(broker) == [b"1", b"3"]


@pytest.mark.parametrize(("others", "expected_s"), [(0, 3.0), (1, 1.5)])
async def test_a_broker_that_is_slow_has_half_the_time_only_if_there_is_another(
    others: int, expected_s: float
) -> None:
    """A batch that is sent again, although its broker may still answer, is stored twice."""
    broker = FakeBrokerClient(orders=1)
    for number in range(others):
        broker.stored[QueueName(Topic("orders"), "broker-b", number)] = []
    async with sending(broker) as client:
        assert (await send(client, b"1", qid=None)).code == 0
    assert broker.timeouts == [pytest.approx(expected_s, abs=0.3)]


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"topic": ""}, 11, "topic '' is not a legal name"),
        ({"topic": "%OWN%0123456789abcdef"}, 11, "is internal: producers cannot send"),
        ({"topic": "%DLQ%billing"}, 11, "cannot send to topics whose names begin with '%'"),
        ({"topic": "nowhere"}, 14, "no topic nowhere"),
        ({"qid": "broker-a_9"}, 11, "has no queue broker-a_9: expected one of its 3 queues, as in"),
        ({"body": encoded(b"1", DELAY="3"), "count": 1}, 11, "'DELAY' is reserved by the broker"),
        ({"body": encoded(b"1", TIMER_DELAY_MS="3"), "count": 1}, 11, "'TIMER_DELAY_MS' is"),
        ({"body": encoded(b"1")[:-1], "count": 1}, 11, "do not fit together"),
        ({"body": None}, 11, "the body holds 0 messages: expected 2, the count"),
        ({"count": None}, 11, "a batch of 0 messages"),
        ({"count": 3}, 11, "the body holds 2 messages: expected 3, the count"),
    ],
)
async def test_nothing_is_stored_of_what_cannot_be_sent(
    fields: dict[str, Any], code: int, reason: str
) -> None:
    broker = FakeBrokerClient(orders=3)
    async with counted(broker) as (client, counts):
        result = await send(client, b"1", b"2", **fields)
        assert (result.code, reason in result.msg) == (code, True), result.msg
        result = await client.call("sendEncoded", None)
        assert (result.code, result.msg) == (11, "the request has no batch")
    assert broker.encoded == []
    assert counts.messages == 0
    assert sum(counts.failures.values()) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestTimeout("no answer"), 12),
        (BrokerError(17, "no such topic"), 14),
        (BrokerError(13, "too large"), 11),
        (BrokerError(2, "busy"), 70),
        (ConnectionLost("gone"), 10),
    ],
)
async def test_failures_have_the_codes_of_other_sends(error: Exception, code: int) -> None:
    broker = FakeBrokerClient(orders=3)
    broker.fails["send"] = error
    async with sending(broker) as client:
        result = await send(client, b"1", timeoutMs=40)
    assert (result.code, str(error) in result.msg, result.stored) == (code, True, 0)


async def test_a_broker_with_a_lower_limit_gets_whole_messages_in_order() -> None:
    broker = FakeBrokerClient(orders=3)
    broker.most_encoded_bytes = 250
    content = [b"%d" % n * 40 for n in range(9)]
    async with sending(broker) as client:
        assert (await send(client, *content)).code == 0
    assert bodies(broker) == content
    assert {place for place, _ in broker.encoded} == {queue(1)}


async def test_a_long_batch_is_split_for_the_broker() -> None:
    broker = FakeBrokerClient(orders=3)
    content = [b"x"] * (MOST_ENCODED + 1)
    async with sending(broker) as client:
        assert (await send(client, *content)).code == 0
    assert [len(entries) for _, entries in broker.encoded] == [MOST_ENCODED, 1]


async def test_a_failure_says_how_many_messages_are_stored() -> None:
    broker = FakeBrokerClient(orders=3)
    broker.most_encoded_bytes = 500
    async with counted(broker) as (client, counts):
        result = await send(client, b"1", b"2", bytes(600), b"4")
    assert (result.code, result.stored) == (11, 2)
    assert result.msg.startswith("2 of 4 messages were not stored: ")
    assert bodies(broker) == [b"1", b"2"]
    assert (counts.messages, counts.body_bytes) == (2, 2)


async def test_messages_that_are_not_on_disk_are_not_known_to_be_stored() -> None:
    broker = FakeBrokerClient(orders=3)
    broker.status = SendStatus.FLUSH_DISK_TIMEOUT
    async with counted(broker) as (client, counts):
        result = await send(client, b"1")
    assert (result.code, result.stored, counts.messages) == (12, 0, 0)
    assert "1 of 1 messages are not known to be stored: " in result.msg
    assert "was not flushed to disk in time" in result.msg


async def test_nothing_is_sent_behind_messages_that_are_not_on_disk() -> None:
    """They are sent again together, and would be stored twice."""
    broker = FakeBrokerClient(orders=3)
    broker.status = SendStatus.FLUSH_DISK_TIMEOUT
    async with sending(broker) as client:
        result = await send(client, *[b"x"] * (MOST_ENCODED + 1))
    assert (result.code, result.stored) == (12, 0)
    assert [len(entries) for _, entries in broker.encoded] == [MOST_ENCODED]


@pytest.mark.parametrize(
    "later",
    [NotConnected("refused"), BrokerError(17, "no such queue"), BrokerError(13, "too large")],
)
async def test_messages_that_may_be_stored_stay_in_doubt(later: RemotingError) -> None:
    """A later attempt that stored nothing says nothing of an earlier one."""

    class Broker(FakeBrokerClient):
        async def send_encoded(self, *arguments: Any, **named: Any) -> Any:
            self.timeouts.append(None)
            raise RequestTimeout("no answer") if len(self.timeouts) == 1 else later

    broker = Broker(orders=3)
    async with sending(broker) as client:
        result = await send(client, b"1", b"2", timeoutMs=200)
    assert (result.code, result.stored) == (12, 0), result.msg
    assert len(broker.timeouts) > 1


@pytest.mark.parametrize("there", [True, False], ids=["no queue", "no nameserver"])
async def test_a_retry_without_a_route_keeps_its_queue(there: bool) -> None:
    """As in other sends: it would end before its time, with a reason that hides the broker's."""

    class Broker(FakeBrokerClient):
        async def send_encoded(self, *arguments: Any, **named: Any) -> Any:
            self.timeouts.append(None)
            if len(self.timeouts) == 1:
                raise BrokerError(2, "busy")
            return await super().send_encoded(*arguments, **named)

        async def writable_queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
            if not self.timeouts:
                return await super().writable_queues(topic)
            if there:
                return []
            raise RequestTimeout("no nameserver answers")

    broker = Broker(orders=3)
    broker.stored[QueueName(Topic("orders"), "broker-b", 0)] = []
    async with sending(broker) as client:
        result = await send(client, b"1", b"2", qid=None)
    assert (result.code, result.msg) == (0, None)
    assert bodies(broker) == [b"1", b"2"]


async def test_each_message_is_in_the_history() -> None:
    broker = FakeBrokerClient(orders=3)
    notes = Notes()
    async with sending(broker, history=notes) as client:
        await send(client, b"1", b"2")
        broker.fails["send"] = RequestTimeout("no answer")
        await send(client, b"3", timeoutMs=40)
    where = {"topic": "orders", "queue": "broker-a_1"}
    assert notes.of("send_ok") == [{"msg": str(n), **where, "offset": n} for n in range(2)]
    assert {fields["msg"] for fields in notes.of("send_info")} == {"0"}
