"""Names that could be read in two ways: a rule grants one topic of a group that has two."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from thrift.Thrift import TApplicationException

from broker_core.names import Topic
from broker_core.remoting.half_place import HalfPlace
from broker_core.remoting.message import OutgoingMessage
from proxy.settings.types import host_port
from testkit.eventually import eventually
from testkit.gateway import GROUP, TOPIC, run_gateway
from testkit.thrift_client import connect, our_pull
from tests.support.thrift_calls import ENCODED
from thrift_idl import consumer, producer

DEAD = f"%DLQ%{GROUP}"
SETTINGS: dict[str, Any] = {
    "tokens": [{"name": "ann", "sha256": hashlib.sha256(b"t").hexdigest()}],
    "access": [
        {"principals": ["ann"], "may": ["pull", "bulk", "produce"], "topics": [TOPIC]},
        {"principals": ["ann"], "may": ["pull", "bulk"], "topics": ["*"]},
    ],
    "groups": [{"name": GROUP, "topics": [{"name": TOPIC}, {"name": DEAD}]}],
}
#: Other spellings of a topic of the group, or of none: Cyrillic, full-width letters, blanks.
SPELLINGS = [
    *("", " ", "\t", "\u200b", "\x00", f"{TOPIC} ", f" {TOPIC}", f"{TOPIC}\n", f"{TOPIC}\x00"),
    *(TOPIC.upper(), "\u043erders", "\uff4frders", "orders\u200b", "*", "%", "%*", "%DLQ%", DEAD),
    *(f"%25DLQ%25{GROUP}", f"%dlq%{GROUP}", f"\uff05DLQ\uff05{GROUP}", f"{TOPIC},{DEAD}"),
]


def calls(name: str) -> list[tuple[str, list[Any]]]:
    """Return a call of every method that names a topic, with *name* at each place."""
    token, qids = "t", {"broker-a_0": 0}
    request = consumer.FetchRequest("c", GROUP, "", {name: qids}, token=token)
    return [
        ("pull", [our_pull(GROUP, topic=name, token=token)]),
        ("pull", [our_pull(GROUP, topics=[name], token=token)]),
        ("pull", [our_pull(GROUP, topics=[TOPIC, name], token=token)]),
        ("pull", [our_pull(GROUP, topic=name, topics=[TOPIC], token=token)]),
        ("getConsumeStats", [consumer.ConsumeStatsRequest(GROUP, name, token=token)]),
        ("fetch", [request]),
        ("ack", [consumer.AckResult("c", GROUP, "", {name: qids}, token=token)]),
        ("ranges", [consumer.RangesRequest(GROUP, [TOPIC, name], token=token)]),
        ("report", [consumer.ProgressReport(GROUP, "c", {name: qids}, token=token)]),
        ("report", [consumer.ProgressReport(GROUP, "c", {}, {name: 1}, token=token)]),
        ("sendSync", [producer.Message(topic=name, body=b"x", token=token), 1000]),
        ("sendAsync", [producer.Message(topic=name, body=b"x", token=token)]),
        ("sendBatchSync", [[producer.Message(topic=name, body=b"x", token=token)]]),
        ("sendEncoded", [producer.EncodedBatch(name, None, 1, ENCODED, token=token)]),
        (
            "sendDelaySync",
            [producer.DelayMessage(topic=name, action=1, timestamp=1, body=b"x", token=token), 9],
        ),
        (
            "prepareTransaction",
            [producer.PrepareRequest(producer.Message(topic=name, body=b"x"), "tx", token=token)],
        ),
        (
            "endTransaction",
            [
                producer.EndRequest(
                    HalfPlace("broker-a", name, "tx", 0, 0, "id").to_text(), 1, token=token
                )
            ],
        ),
        ("transactionChecks", [producer.ChecksRequest("tx", [TOPIC, name], 0, token=token)]),
        ("writableQueues", [producer.QueuesRequest(name, token=token)]),
    ]


def seen(method: str, answer: Any) -> bool:
    """Return whether *answer* serves the request, in part or in whole."""
    if isinstance(answer, Exception):
        return False
    if method == "ack":
        return False  # of an unknown topic it sets nothing, and of another one it is refused
    if method == "report":
        return answer.refusal is None
    if method == "fetch":
        return any(each.messages or each.nextRequestOffset for each in answer.results)
    if hasattr(answer, "code"):
        return answer.code == 0
    return bool(answer)


@pytest.mark.parametrize("limited", [True, False])
async def test_no_spelling_of_a_name_reads_or_writes_another_topic(
    tmp_path: Path, limited: bool
) -> None:
    """*limited*: the group's only rule names the one topic, so that even the star is missing."""
    settings = {**SETTINGS, "access": SETTINGS["access"][: 1 if limited else None]}
    async with run_gateway(tmp_path, queues=1) as gateway:
        await gateway.client.create_topic(Topic(DEAD), queues=1)
        (queue,) = await gateway.client.queues(Topic(DEAD))
        await gateway.client.send(queue, OutgoingMessage(topic=Topic(DEAD), body=b"secret"))
        proxy, at = await gateway.start_proxy(**settings)
        async with connect(host_port(at.thrift)[1]) as client:
            for name in SPELLINGS:
                for method, values in calls(name):
                    try:
                        answer = await client.call(method, *values)
                    except (consumer.PullException, TApplicationException) as error:
                        answer = error
                    assert not seen(method, answer), (method, name, answer)
            with pytest.raises(consumer.PullException) as refused:
                await client.pull(GROUP, token="t")
            assert refused.value.code == 403
            asked = consumer.FetchRequest("c", GROUP, "", token="t")
            assert (await client.call("fetch", asked)).code == 403
        lane = proxy.lanes.find(GROUP)
        assert lane is not None
        assert DEAD not in {each["topic"] for each in gateway.events("deliver")}


async def test_an_empty_topic_is_an_invalid_request_without_rules_as_well(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy()
        async with connect(host_port(at.thrift)[1]) as client:
            for fields in ({"topic": ""}, {"topics": [TOPIC, ""]}):
                with pytest.raises(consumer.PullException, match="empty name") as refused:
                    await client.pull(GROUP, **fields)
                assert refused.value.code == 400


async def test_a_topic_added_during_a_wait_is_not_part_of_the_pull(tmp_path: Path) -> None:
    """The rights were checked for the topics that the group had when the pull began."""
    groups = [{"name": GROUP, "topics": [{"name": TOPIC}]}]
    async with run_gateway(tmp_path, queues=1) as gateway:
        await gateway.client.create_topic(Topic(DEAD), queues=1)
        proxy, at = await gateway.start_proxy(**SETTINGS | {"groups": groups})
        async with connect(host_port(at.thrift)[1]) as client:
            client.send("pull", our_pull(GROUP, token="t", linger_ms=1_500))
            lane = proxy.lanes.find(GROUP)
            assert lane is not None
            await eventually(lambda: lane.presence.waiting_pulls == 1)
            dead = lane.settings.topics[0].model_copy(update={"name": DEAD})
            lane.apply(lane.settings.model_copy(update={"topics": (*lane.settings.topics, dead)}))
            (queue,) = await gateway.client.queues(Topic(DEAD))
            await gateway.client.send(queue, OutgoingMessage(topic=Topic(DEAD), body=b"secret"))
            assert (await client.answer("pull")).messages == []
