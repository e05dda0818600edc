"""Queries for messages by key, id and time, as other clients send them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from broker_core.client.queries import Queries
from broker_core.client.requests import BrokerRequests
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage, StoredMessage, decode_messages
from broker_core.remoting.message_batch import encode_batch
from testkit.broker_process import Cluster, run_broker
from tests.integration.broker.raw_requests import TOPIC, Raw, send_header

ALWAYS = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1), "maxNum": "64"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
        yield cluster


@pytest.fixture
async def raw(cluster: Cluster) -> AsyncIterator[Raw]:
    connection = Raw(cluster)
    yield connection
    await connection.pool.close()


def found_folders(folder: Path) -> list[Path]:
    return list(folder.rglob("index"))


async def send(raw: Raw, *messages: tuple[str, str], size: int = 1) -> list[str]:
    """Send messages of (keys, unique key); return their offset message ids."""
    batch = [
        OutgoingMessage(TOPIC, b"b" * size, key=keys, properties={"UNIQ_KEY": unique})
        for keys, unique in messages
    ]
    answer = await raw.ask(
        RequestCode.SEND_BATCH_MESSAGE, send_header().to_v2(), encode_batch(batch)
    )
    assert answer.code == 0
    return answer.ext["msgId"].split(",")


async def query(raw: Raw, key: str, **fields: str) -> RemotingCommand:
    ext = {"topic": TOPIC, "key": key, **ALWAYS, **fields}
    return await raw.ask(RequestCode.QUERY_MESSAGE, ext)


def keys(answer: RemotingCommand) -> list[str]:
    assert answer.code == 0, answer.remark
    return [str(message.properties["UNIQ_KEY"]) for message in decode_messages(answer.body)]


async def test_by_key_the_newest_come_in_the_order_of_the_log(raw: Raw) -> None:
    await send(raw, *((f"k{n % 2} all", f"U{n}") for n in range(100)))
    assert keys(await query(raw, "k1", maxNum="3")) == ["U95", "U97", "U99"]
    assert keys(await query(raw, "all", maxNum="9999")) == [f"U{n}" for n in range(36, 100)]
    answer = await query(raw, "U7", _UNIQUE_KEY_QUERY="true", maxNum="1")
    assert keys(answer) == ["U7"]
    assert int(answer.ext["indexLastUpdatePhyoffset"]) > 0
    assert int(answer.ext["indexLastUpdateTimestamp"]) > 0


async def test_by_key_what_is_not_there_is_22_and_nonsense_1(raw: Raw) -> None:
    await send(raw, ("k", "U1"))
    assert (await query(raw, "unknown")).code == 22
    assert (await query(raw, "k", topic="nowhere")).code == 22
    assert (await query(raw, "k", endTimestamp="1")).code == 22
    for wrong in ({"maxNum": "0"}, {"maxNum": "x"}, {"beginTimestamp": ""}):
        assert (await query(raw, "k", **wrong)).code == 1


async def test_an_answer_has_room_for_so_much(raw: Raw) -> None:
    for n in range(4):
        await send(raw, ("big", f"U{n}"), size=3 * 1024 * 1024)
    answer = await query(raw, "big")
    assert keys(answer) == ["U2", "U3"]
    assert answer.ext["complete"] == "false"
    client = await raw.cluster.client()
    for key, most, found, complete in (
        *(("big", 64, 2, False), ("big", 1, 1, False), ("U1", 64, 1, True), ("none", 64, 0, True)),
    ):
        by_key = await client.queries.find("broker-a", Topic(TOPIC), key, most=most)
        assert (len(by_key.messages), by_key.complete) == (found, complete)


async def test_the_answer_of_another_broker_is_complete_below_the_number(raw: Raw) -> None:
    """Apache's brokers do not say so."""
    await send(raw, *(("k", f"U{n}") for n in range(3)))
    answer = await query(raw, "k")
    assert answer.ext.pop("complete") == "true"

    class Other:
        async def ask(self, *_: object, **__: object) -> RemotingCommand:
            return answer

    for most, complete in ((3, False), (4, True)):
        queries = Queries(cast("BrokerRequests", Other()))
        by_key = await queries.find("broker-a", Topic(TOPIC), "k", most=most)
        assert (len(by_key.messages), by_key.complete) == (3, complete)


async def test_by_id_the_message_comes_and_nothing_else_does(raw: Raw) -> None:
    (msg_id, *_) = await send(raw, ("k", "U1"), ("k", "U2"))
    place = int(msg_id[16:], 16)
    answer = await raw.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)})
    assert keys(answer) == ["U1"]
    for wrong in (place + 1, -1, 2**40, 2**62):
        answer = await raw.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(wrong)})
        assert (answer.code, "no message starts at offset" in str(answer.remark)) == (1, True)


async def offset_at(raw: Raw, at_ms: int, boundary: str | None) -> int:
    ext = {"topic": TOPIC, "queueId": "0", "timestamp": str(at_ms)}
    if boundary is not None:
        ext["boundaryType"] = boundary
    return int((await raw.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)).ext["offset"])


async def test_by_time_the_first_from_it_on_or_the_last_up_to_it(raw: Raw) -> None:
    queue = {"topic": TOPIC, "queueId": "0"}
    empty = await raw.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
    assert (empty.code, empty.ext["timestamp"]) == (0, "-1")
    assert await offset_at(raw, 5, "UPPER") == 0
    for n in range(5):
        await send(raw, ("k", f"U{n}"))
    stored: list[StoredMessage] = decode_messages((await raw.pull()).body)
    times = [message.store_ms for message in stored]
    earliest = await raw.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
    assert earliest.ext["timestamp"] == str(times[0])
    for at_ms in (*times, times[0] - 1, times[-1] + 1):
        lower = sum(each < at_ms for each in times)
        upper = max(0, sum(each <= at_ms for each in times) - 1)
        assert await offset_at(raw, at_ms, None) == lower
        assert await offset_at(raw, at_ms, "lower") == lower
        assert await offset_at(raw, at_ms, "UPPER") == upper


async def test_messages_are_found_after_a_crash(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
        raw = Raw(cluster)
        await send(raw, ("k", "U1"))
        assert keys(await query(raw, "k")) == ["U1"]
        await raw.pool.close()
        await cluster.restart_broker(crash=True)
        raw = Raw(cluster)
        await send(raw, ("k", "U2"))
        assert keys(await query(raw, "k")) == ["U1", "U2"]
        await raw.pool.close()


async def test_without_an_index_a_query_says_so_and_its_files_are_gone(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
        folders = found_folders(tmp_path)
        assert len(folders) == 1
    async with run_broker(tmp_path, key_index=False) as cluster:
        raw = Raw(cluster)
        answer = await query(raw, "k")
        assert (answer.code, "key_index is false" in str(answer.remark)) == (1, True)
        assert found_folders(tmp_path) == []
        await raw.pool.close()
