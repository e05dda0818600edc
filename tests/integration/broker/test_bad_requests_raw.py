"""Invalid frames, and oversized content in valid ones: the remoting ports under absurd clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand, SerializeType
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from testkit.eventually import eventually
from tests.support.bad_requests import AT_BROKER, AT_NAMESERVER, TOPIC
from tests.support.raw_requests import Asker, asking, json_frame, raw_connection, read_frame


@pytest.fixture
async def asker(tmp_path: Path) -> AsyncIterator[Asker]:
    async with asking(tmp_path) as asker:
        yield asker


async def test_ext_fields_that_are_missing_or_nested_are_answered(asker: Asker) -> None:
    absent_or_odd = ({}, {"extFields": None}, {"extFields": {"topic": None}}, {"remark": [1]})
    nested = {"extFields": {"topic": {"a": [1]}, "queueId": 0, "consumerGroup": [True]}}
    async with raw_connection(asker.cluster.broker_address) as (reader, writer):
        for code in (*AT_BROKER, 4711, -5):
            for fields in (*absent_or_odd, nested):
                writer.write(json_frame({"code": code, "opaque": 7, **fields}))
                answer = await read_frame(reader)
                assert (answer.opaque, answer.code in set(ResponseCode)) == (7, True)
    assert await asker.stored() == 1


NO_FRAMES = {
    "ext fields are a list": json_frame({"code": 30, "extFields": [1]}),
    "ext fields are a number": json_frame({"code": 30, "extFields": 5}),
    "ext field very deep": json_frame(
        b'{"code":30,"extFields":{"a":' + b"[" * 1000 + b"]" * 1000 + b"}}"
    ),
    "code is a text": json_frame({"code": "x" * 5000}),
    "opaque beyond 32 bits": json_frame({"code": 30, "opaque": 1 << 31}),
    "header is no JSON": json_frame(b"{]"),
    "header longer than the frame": b"\0\0\0\x08\0\0\0\x64abcd",
    "unknown serialize type": b"\0\0\0\x08\x05\0\0\x04abcd",
    "frame of 2 GB": b"\x7f\xff\xff\xff",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "PROXY protocol, version 1": b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
    "PROXY protocol, version 2": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12),
    "Thrift, framed binary": b"\0\0\0\x15\x80\x01\0\x01\0\0\0\x04pull\0\0\0\x01" + bytes(5),
    "Thrift, framed compact": b"\0\0\0\x0d\x82\x21\x01\x04pull" + bytes(5),
}


@pytest.mark.parametrize("what", NO_FRAMES)
async def test_an_invalid_frame_ends_its_connection_with_one_log_line(
    asker: Asker, what: str
) -> None:
    """One per minute and address, however often such a client returns."""
    for address in (asker.cluster.broker_address, asker.cluster.nameserver):
        asker.logs.clear()
        for _ in range(3):
            async with raw_connection(address) as (reader, writer):
                writer.write(NO_FRAMES[what])
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
        (line,) = [line for line in asker.logs if line["event"] == "broken frame, disconnected"]
        assert ("TLS, which is not supported here" in line["error"]) == (what == "TLS")
        assert line["peer"].startswith("127.0.0.1:")
        asker.assert_nothing_broke()
    assert await asker.stored() == 1


@pytest.mark.parametrize("serialize", SerializeType)
async def test_properties_of_up_to_32_kb_are_taken(asker: Asker, serialize: SerializeType) -> None:
    """32,767 bytes including the last separator, which is added if missing; code 13 above."""

    async def send(properties: str) -> RemotingCommand:
        good = AT_BROKER[RequestCode.SEND_MESSAGE_V2]
        request = RemotingCommand(
            RequestCode.SEND_MESSAGE_V2, ext=good.ext() | {"i": properties}, body=b"x"
        )
        request.serialize = serialize
        return (await asker.ask(asker.cluster.broker_address, request))[0]

    assert (await send("K\x01" + "v" * 32_764 + "\x02")).code == 0
    assert (await send("K\x01" + "v" * 32_764)).code == 0
    assert (await send("K\x01" + "é" * 16_382)).code == 0
    for too_long in ("v" * 32_765, "é" * 16_383, "v" * 40_000, "v" * 900_000):
        answer = await send("K\x01" + too_long)
        assert (answer.code, "at most 32767" in (answer.remark or "")) == (13, True)
    assert await asker.stored() == 4


async def test_properties_of_a_batch_and_its_messages_together_have_the_same_limit(
    asker: Asker,
) -> None:
    good = AT_BROKER[RequestCode.SEND_BATCH_MESSAGE]
    body = encode_batch([OutgoingMessage(TOPIC, b"x", properties={"K": "v" * 32_000})])
    request = RemotingCommand(
        RequestCode.SEND_BATCH_MESSAGE, ext=good.ext() | {"i": "L\x01" + "w" * 1000}, body=body
    )
    (answer,) = await asker.ask(asker.cluster.broker_address, request)
    assert answer.code == 13
    assert await asker.stored() == 1


async def test_properties_of_a_batch_are_not_multiplied_beyond_a_frame(asker: Asker) -> None:
    """A hundred thousand empty messages would each get them: gigabytes."""
    good = AT_BROKER[RequestCode.SEND_BATCH_MESSAGE]
    empty = encode_batch([OutgoingMessage(TOPIC, b"")])
    properties = "".join(f"{n}\x01v\x02" for n in range(4000))
    requests = [
        RemotingCommand(
            RequestCode.SEND_BATCH_MESSAGE, ext=good.ext() | {"i": properties}, body=empty * count
        )
        for count in (100_000, 200)
    ]
    refused, taken = await asker.ask(asker.cluster.broker_address, *requests)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "each of its 100000 messages" in (refused.remark or "")
    assert taken.code == 0
    assert await asker.stored() == 201


async def test_a_batch_that_lies_about_its_lengths_is_refused_whole(asker: Asker) -> None:
    """Each length of an entry wrong by a little, by much, below zero; and a batch truncated
    anywhere.
    """
    good = AT_BROKER[RequestCode.SEND_BATCH_MESSAGE]
    entry = good.content()
    properties_at = 20 + 3  # after the body b"one"
    lies = [entry[:end] for end in range(1, len(entry))]
    for at, size in ((0, 4), (16, 4), (properties_at, 2)):
        right = int.from_bytes(entry[at : at + size], "big")
        for wrong in {0, right - 1, right + 1, 30_000, (1 << 8 * size) - 1} - {right, -1}:
            lies.append(entry[:at] + wrong.to_bytes(size, "big") + entry[at + size :])
    bodies = [*lies, *(entry + lie for lie in lies), *(lie + entry for lie in lies)]
    requests = [
        RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, ext=good.ext(), body=body)
        for body in bodies
    ]
    answers = await asker.ask(asker.cluster.broker_address, *requests)
    assert {answer.code for answer in answers} == {ResponseCode.MESSAGE_ILLEGAL}
    assert await asker.stored() == 1


async def test_what_is_too_large_is_refused_before_it_is_kept(asker: Asker) -> None:
    broker, nameserver = asker.cluster.broker_address, asker.cluster.nameserver
    queue = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}
    lock = {"consumerGroup": "g", "clientId": "one", "mqSet": [queue] * 250_000}
    subscription = {"topic": TOPIC, "subString": "a", "codeSet": list(range(1_000_000))}
    group = {"groupName": "g", "subscriptionDataSet": [subscription]}
    many = [{"groupName": f"g{number}"} for number in range(5000)]
    pull = AT_BROKER[RequestCode.PULL_MESSAGE].ext()
    value = {"namespace": "n", "key": "k2", "value": "v" * 1_000_000}
    for address, request, said in (
        (broker, _with_body(RequestCode.LOCK_BATCH_MQ, lock), "at most 1048576"),
        (broker, _with_body(RequestCode.UNLOCK_BATCH_MQ, lock), "at most 1048576"),
        (broker, _with_body(34, {"clientID": "c", "consumerDataSet": [group]}), "at most 4194304"),
        (broker, _with_body(34, {"clientID": "c", "consumerDataSet": many}), "at most 4096"),
        (broker, _with_body(34, {"clientID": "c" * 2000}), "expected 1 to 1024"),
        (broker, _with_ext(11, pull | {"subscription": "a||" * 11_000}), "at most 32767"),
        *((nameserver, _with_ext(100, value | {"key": f"k{each}"}), "") for each in range(16)),
        (nameserver, _with_ext(100, value | {"key": "one more"}), "at most 16777216"),
    ):
        (answer,) = await asker.ask(address, request)
        assert said in (answer.remark or "")
        assert bool(answer.code) == bool(said)


@pytest.mark.slow
async def test_a_hundred_thousand_topics_can_be_registered(asker: Asker) -> None:
    topics = {f"topic-{number}": {"perm": 6} for number in range(100_000)}
    route = _with_ext(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "topic-99999"})
    more = {"t" + name: {} for name in topics}
    answers = await asker.ask(
        asker.cluster.nameserver, _registration(topics), route, _registration(more)
    )
    assert [answer.code for answer in answers] == [0, 0, 0]
    (answer,) = await asker.ask(asker.cluster.nameserver, _registration({"one-more": {}}))
    assert (answer.code, "at most 200000 are allowed" in (answer.remark or "")) == (1, True)


async def test_a_pull_takes_no_more_than_its_limits_whatever_it_asks_for(asker: Asker) -> None:
    batch = encode_batch([OutgoingMessage(TOPIC, b"x") for _ in range(5000)])
    send = RemotingCommand(
        RequestCode.SEND_BATCH_MESSAGE,
        ext=AT_BROKER[RequestCode.SEND_BATCH_MESSAGE].ext(),
        body=batch,
    )
    await asker.ask(asker.cluster.broker_address, send)
    ext = AT_BROKER[RequestCode.PULL_MESSAGE].ext()
    absurd = ext | {"maxMsgNums": "2147483647", "maxMsgBytes": "2147483647"}
    (answer,) = await asker.ask(asker.cluster.broker_address, _with_ext(11, absurd))
    assert answer.ext["nextBeginOffset"] == "4096"
    absurd = ext | {"maxMsgNums": "2147483647", "maxMsgBytes": "-5"}
    (answer,) = await asker.ask(asker.cluster.broker_address, _with_ext(11, absurd))
    assert answer.ext["nextBeginOffset"] == "1"


async def test_what_a_held_pull_keeps_in_memory_counts(asker: Asker) -> None:
    """A client can hold pulls as long as it wants, but not more than 64 MiB of them."""
    ext = AT_BROKER[RequestCode.PULL_MESSAGE].ext() | {
        "queueId": "1", "sysFlag": "6", "suspendTimeoutMillis": str((1 << 63) - 1),
        "unknown": "x" * 1_000_000,
    }  # fmt: skip
    async with raw_connection(asker.cluster.broker_address) as (reader, writer):
        for opaque in range(80):
            writer.write(RemotingCommand(11, opaque=opaque, ext=ext).encode())
        server = asker.cluster.broker.server
        await eventually(lambda: any(not channel.is_reading for channel in server.channels))
        assert len(asker.cluster.broker.components.long_polls) == 68  # of 1 MB each
        ext = AT_BROKER[RequestCode.SEND_MESSAGE].ext() | {"queueId": "1"}
        send = RemotingCommand(RequestCode.SEND_MESSAGE, ext=ext, body=b"x")
        await asker.ask(asker.cluster.broker_address, send)
        answers = [await read_frame(reader) for _ in range(80)]
    assert sorted(answer.opaque for answer in answers) == list(range(80))
    assert {answer.code for answer in answers} == {0}


def _with_ext(code: int, ext: dict[str, str]) -> RemotingCommand:
    return RemotingCommand(code, ext=ext, serialize=SerializeType.ROCKETMQ)


def _with_body(code: int, fields: object) -> RemotingCommand:
    return RemotingCommand(code, body=orjson.dumps(fields))


def _registration(topics: dict[str, dict[str, int]]) -> RemotingCommand:
    body = {"topicConfigSerializeWrapper": {"topicConfigTable": topics}}
    ext = AT_NAMESERVER[RequestCode.REGISTER_BROKER].ext() | {"heartbeatTimeoutMillis": "60000"}
    return RemotingCommand(RequestCode.REGISTER_BROKER, ext=ext, body=orjson.dumps(body))
