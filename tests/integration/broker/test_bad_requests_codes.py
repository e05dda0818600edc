"""Bad requests are answered with the response codes of Apache RocketMQ's brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.connection_pool import ConnectionPool
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.route_bodies import ClusterTable
from testkit.brokers import Brokers
from tests.support.bad_requests import AT_BROKER
from tests.support.raw_requests import json_frame, raw_connection

TOPIC = Topic("bad-requests")
#: 5.x has a separate code, INVALID_PARAMETER, for some errors of 4.9 and ours.
INVALID = {1, 29}

SEND, PULL, DEFINE = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
)

#: Request code, changed fields (None: omitted), body (None: the good one), codes of the answer.
CASES: list[tuple[int, dict[str, str | None], bytes | None, set[int]]] = [
    *((SEND, {name: None}, None, {1}) for name in "beg"),
    *((SEND, {"e": text}, None, {1}) for text in ("NaN", "", "1.5", "x", str(1 << 31))),
    # Ours reports the missing queue, so that a producer refreshes the route and tries another.
    (SEND, {"e": "4"}, None, {*INVALID, 17}),
    (SEND, {"g": str(1 << 63)}, None, {1}),
    (SEND, {"l": "x"}, None, {0, 1}),  # optional: ours uses its default
    *((SEND, {"b": name}, None, INVALID) for name in ("", "a b", "été", "x" * 128)),
    (SEND, {"b": "SCHEDULE_TOPIC_XXXX"}, None, {16}),
    (SEND, {"i": "K\x01" + "v" * 32_767}, None, {13}),
    (SEND, {}, bytes((4 << 20) + 1), {13}),
    *((PULL, {name: None}, None, {1}) for name in ("consumerGroup", "topic", "queueId", "sysFlag")),
    *((PULL, {name: "x"}, None, {1}) for name in ("queueId", "queueOffset", "subVersion")),
    (PULL, {"topic": "unknown-topic"}, None, {17}),
    *((PULL, {"queueId": text}, None, INVALID) for text in ("4", "-1", "2147483647")),
    *((PULL, {"queueOffset": text}, None, {21}) for text in ("-1", "99", str((1 << 63) - 1))),
    (PULL, {"sysFlag": "0"}, None, {24}),
    (PULL, {"subscription": "||"}, None, {23}),
    (PULL, {"expressionType": "FOO"}, None, {1}),
    # Apache's filter so only if configured (enablePropertyFilter); * is not such a filter.
    (PULL, {"expressionType": "SQL92"}, None, {1, 23}),
    *((code, {"queueId": "x"}, None, {1}) for code in (14, 29, 30, 31)),
    *((code, {"topic": "unknown-topic"}, None, {0}) for code in (29, 30, 31)),
    (29, {"timestamp": "x"}, None, {1}),
    *((34, {}, body, {1}) for body in (b"", b"{", b"[]", b"null", b"5", b"\xff\xfe")),
    (38, {"consumerGroup": "unknown"}, None, {1}),
    *((code, {}, body, {1}) for code in (41, 42) for body in (b"", b"{", b"[]", b'{"mqSet":5}')),
    *((DEFINE, {name: None}, None, {1}) for name in ("readQueueNums", "writeQueueNums")),
    *((DEFINE, {name: "x"}, None, {1}) for name in ("readQueueNums", "topicFilterType")),
    *((DEFINE, {"topic": text}, None, INVALID) for text in ("", "a b", "x" * 128, "TBW102")),
    (4711, {}, None, {3}),
]

CLOSING = [
    json_frame({"code": 30, "extFields": [1]}),
    json_frame({"code": 1 << 40}),
    json_frame({"code": 30, "opaque": "x"}),
    b"GET / HTTP/1.1\r\n\r\n",
    b"\0\0\0\x08\0\0\0\x64abcd",
    b"\0\0\0\x08\x05\0\0\x04abcd",
]


@pytest.mark.feature("bad requests get the same codes")
async def test_bad_requests_get_the_codes_of_rocketmq(brokers: Brokers, tmp_path: Path) -> None:
    async with brokers.run(tmp_path) as cluster:
        (queue, *_) = await cluster.create_topic(TOPIC)
        await (await cluster.client()).send(queue, OutgoingMessage(TOPIC, b"x"))
        pool = ConnectionPool()
        try:
            answer = await pool.request(cluster.nameserver, RemotingCommand(106), timeout_s=20)
            address = ClusterTable.from_json(answer.body).brokers["broker-a"].addresses[0]
            unlike = []
            for code, changes, body, codes in CASES:
                answer = await pool.request(address, _request(code, changes, body), timeout_s=20)
                if answer.code not in codes:
                    unlike.append((code, str(changes)[:80], answer.code, answer.remark))
            assert unlike == []
            for frame in CLOSING:
                async with raw_connection(address) as (reader, writer):
                    writer.write(frame)
                    assert await _ended(reader.read()) == b""
        finally:
            await pool.close()


async def _ended(reading: Coroutine[Any, Any, bytes]) -> bytes:
    try:
        async with asyncio.timeout(20):
            return await reading
    except ConnectionResetError:
        return b""


def _request(code: int, changes: dict[str, str | None], body: bytes | None) -> RemotingCommand:
    good = AT_BROKER.get(code)
    ext: dict[str, str | None] = {} if good is None else {**good.ext()}
    ext |= {name: TOPIC for name in ("topic", "b") if name in ext} | changes
    content = b"" if good is None else good.content()
    return RemotingCommand(
        code,
        ext={name: text for name, text in ext.items() if text is not None},
        body=content if body is None else body,
    )
