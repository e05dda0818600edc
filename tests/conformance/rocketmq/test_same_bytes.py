"""What Apache RocketMQ's own client sends, thin clients get, to the byte; and the other way round.

10,000 messages in all, made by hypothesis, always the same ones.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, seed, settings

from broker_core.remoting.message import RESERVED_PROPERTIES
from broker_core.tasks import spawn
from testkit.broker_process import AnyCluster, run_broker
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import TOPIC, Gateway, run_gateway
from testkit.processes import ROOT
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.relay import (
    MESSAGES,
    Received,
    Sent,
    hashes_by_java,
    receiving_by_java,
    send_by_java,
)
from thin_client import AsyncConsumer, AsyncProducer, Message, Outgoing, SendFailed
from thin_client.key_hash import plain_key

both_versions = pytest.mark.parametrize("version", VERSIONS)

_EACH_WAY = 10_000 // (2 * len(VERSIONS))
_LIMIT_S = 90
_BATCH = 60
_ON_ITS_OWN = 150


# ---- messages -----------------------------------------------------------------------------------


@cache
def _random_messages(number: int) -> list[Outgoing]:
    """Number *number* of the lots of random messages; the odd ones are in each."""
    made: list[Outgoing] = []

    @seed(number)
    @settings(
        max_examples=_EACH_WAY,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(message=MESSAGES)
    def make(message: Outgoing) -> None:
        made.append(message)

    make()
    odd = _odd_messages(number)
    return (odd + made + made)[:_EACH_WAY]


def _odd_messages(number: int) -> list[Outgoing]:
    """Bodies that clients compress or cannot, and properties up to what a message may carry."""
    bits = random.Random(number)
    bodies = [bits.randbytes(size) for size in (1, 4095, 4096, 4097, 100_000)]
    bodies += [b"again " * times for times in (682, 683, 50_000, 200_000)]
    messages = [Outgoing(TOPIC, body, key=f"body-{at}") for at, body in enumerate(bodies)]
    largest = {"ascii": "x" * 16_000, "astral": "😀" * 4_000}
    for at, properties in enumerate(
        [largest, {"a=b": "c;d,e|f", "new\nline": "tab\t", '"': "\\"}, {"é": "\u0301", "ß": "ẞ"}]
    ):
        messages.append(Outgoing(TOPIC, b"1", key=f"odd-{at}", properties=properties))
    return messages


def _expected(message: Outgoing) -> dict[str, Any]:
    body, key, tag = message.body, message.key, message.tag
    return {"body": body, "key": key, "tag": tag, "properties": dict(message.properties)}


def _content(received: Received) -> dict[str, Any]:
    own = {n: v for n, v in received.properties.items() if n not in RESERVED_PROPERTIES}
    return {"body": received.body, "key": received.key, "tag": received.tag, "properties": own}


def _sharding_key(message: Outgoing) -> str | None:
    if message.sharding_key is not None:
        return message.sharding_key
    return message.key if plain_key(message.key or "") else None


# ---- both ways ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unflushed(Brokers):
    """Embedded ones that do not wait for the disk: it changes no byte."""

    @asynccontextmanager
    async def run(self, folder: Path) -> AsyncIterator[AnyCluster]:
        async with run_broker(folder, flush="async") as cluster:
            yield cluster


_EMBEDDED = _Unflushed()


@asynccontextmanager
async def _thin_consumer(address: str, group: str) -> AsyncIterator[dict[str, Received]]:
    """Runs one while the context lasts; gives what it got so far, by message id."""
    got: dict[str, Received] = {}

    async def keep(message: Message) -> None:
        assert message.message_id is not None
        got[message.message_id] = Received(
            queue_id=int(message.queue.partition("#")[0].rpartition("_")[2]),
            offset=message.offset,
            message_id=message.message_id,
            body=message.body,
            key=message.key,
            tag=message.tag,
            properties=message.properties,
        )

    consumer = AsyncConsumer(address, group=group, concurrency=64)
    running = spawn(consumer.run(keep, handle_signals=False), name="thin consumer")
    try:
        yield got
    finally:
        consumer.stop()
        await running


async def _send_by_thin_client(address: str, messages: Sequence[Outgoing]) -> list[str]:
    """In batches of several sizes, single ones among them; their ids."""
    sizes = random.Random(len(messages))
    ids: list[str] = []
    async with AsyncProducer(address, timeout_s=_LIMIT_S) as producer:
        while len(ids) < len(messages):
            size = sizes.choice([1, 7, _BATCH])
            ids += await producer.send_batch(messages[len(ids) : len(ids) + size])
    return ids


async def _until(got: dict[str, Received], ids: Iterable[str]) -> None:
    wanted = set(ids)
    await eventually(lambda: wanted <= got.keys(), within_s=_LIMIT_S)


def _check_places(messages: Sequence[Outgoing], got: Sequence[Received]) -> dict[str, int]:
    """Each sharding key has one queue, and its messages rise in it; the queue of each key."""
    queues: dict[str, set[int]] = defaultdict(set)
    offsets: dict[str, list[int]] = defaultdict(list)
    for message, received in zip(messages, got, strict=True):
        if (key := _sharding_key(message)) is not None:
            queues[key].add(received.queue_id)
            offsets[key].append(received.offset)
    assert {key: found for key, found in queues.items() if len(found) > 1} == {}
    assert [key for key, found in offsets.items() if found != sorted(set(found))] == []
    return {key: min(found) for key, found in queues.items()}


@asynccontextmanager
async def _gateway(
    folder: Path, brokers: Brokers = _EMBEDDED
) -> AsyncIterator[tuple[Gateway, str]]:
    async with run_gateway(folder, brokers=brokers) as gateway:
        _, addresses = await gateway.start_proxy()
        yield gateway, addresses.thrift


async def _java_to_thin(
    version: str, folder: Path, messages: Sequence[Outgoing], brokers: Brokers = _EMBEDDED
) -> tuple[list[Sent], list[Received]]:
    async with (
        _gateway(folder, brokers) as (gateway, address),
        _thin_consumer(address, gateway.group) as got,
    ):
        nameserver = gateway.cluster.nameserver
        sent = await send_by_java(version, folder, nameserver, gateway.topic, messages)
        assert [each.failure for each in sent if each.failure] == []
        await _until(got, [each.message_id for each in sent])
        return sent, [got[each.message_id] for each in sent]


async def _thin_to_java(
    version: str, folder: Path, messages: Sequence[Outgoing], brokers: Brokers = _EMBEDDED
) -> list[Received]:
    async with _gateway(folder, brokers) as (gateway, address):
        messages = [replace(each, topic=gateway.topic) for each in messages]
        ids = await _send_by_thin_client(address, messages)
        nameserver = gateway.cluster.nameserver
        got: dict[str, Received] = {}
        async with receiving_by_java(version, folder, nameserver, gateway.topic) as received:
            async with asyncio.timeout(_LIMIT_S):
                while len(got) < len(messages):
                    each = await anext(received)
                    got[each.message_id] = each
        return [got[message_id] for message_id in ids]


@both_versions
@pytest.mark.feature("same bytes: official producer, thin consumer")
async def test_what_java_sends_a_thin_client_gets(version: str, tmp_path: Path) -> None:
    messages = _random_messages(VERSIONS.index(version))
    sent, got = await _java_to_thin(version, tmp_path, messages)

    assert list(map(_expected, messages)) == list(map(_content, got))
    assert [(s.queue_id, s.offset) for s in sent] == [(g.queue_id, g.offset) for g in got]
    _check_places(messages, got)


@both_versions
@pytest.mark.feature("same bytes: thin producer, official consumer")
async def test_what_a_thin_client_sends_java_gets(version: str, tmp_path: Path) -> None:
    messages = _random_messages(len(VERSIONS) + VERSIONS.index(version))
    got = await _thin_to_java(version, tmp_path, messages)

    assert list(map(_expected, messages)) == list(map(_content, got))
    _check_places(messages, got)


@both_versions
@pytest.mark.feature("same key, same queue from both producers")
async def test_a_key_goes_to_the_same_queue_from_both(version: str, tmp_path: Path) -> None:
    """Halves of pairs among the keys: no message can hold one, yet it can be sharded by it. Blanks
    around a key count for RocketMQ's producers, not for ours.
    """
    lots = (key for lot in range(2) for key in map(_sharding_key, _random_messages(lot)) if key)
    keys = {key for key in lots if plain_key(key) == key}
    keys = {"\ud800", "a\udc00b", *sorted(keys)[:400]}
    messages = [Outgoing(TOPIC, b"1", sharding_key=key) for key in keys]
    async with (
        _gateway(tmp_path) as (gateway, address),
        _thin_consumer(address, gateway.group) as got,
    ):
        nameserver = gateway.cluster.nameserver
        sent = await send_by_java(version, tmp_path, nameserver, TOPIC, messages)
        ids = await _send_by_thin_client(address, messages)
        await _until(got, ids)

    assert len(messages) > 400
    assert [each.queue_id for each in sent] == [got[each].queue_id for each in ids]


@pytest.mark.feature("same bytes both ways on its own brokers")
async def test_the_same_on_its_own_brokers(version: str, brokers: Brokers, tmp_path: Path) -> None:
    """The proxy on Apache RocketMQ's brokers; on the embedded one where none is asked for."""
    java = version if brokers.official else VERSIONS[0]
    messages = _random_messages(0)[:_ON_ITS_OWN]
    sent, got = await _java_to_thin(java, tmp_path, messages, brokers)
    assert list(map(_expected, messages)) == list(map(_content, got))
    assert [(s.queue_id, s.offset) for s in sent] == [(g.queue_id, g.offset) for g in got]

    got = await _thin_to_java(java, tmp_path / "back", messages, brokers)
    assert list(map(_expected, messages)) == list(map(_content, got))


@both_versions
@pytest.mark.feature("what the official producer refuses, ours refuses")
async def test_what_java_refuses_a_thin_client_refuses(version: str, tmp_path: Path) -> None:
    """Each with a sentence. What holds a separator Java sends, and it arrives broken; not ours."""
    refused = [
        (Outgoing(TOPIC, b""), "a body of 0 bytes: it should have 1 to"),
        (Outgoing(TOPIC, bytes(4 * 1024 * 1024 + 1)), "a body of 4194305 bytes"),
        (Outgoing(TOPIC, b"1", properties={"p": "v" * 32_768}), "a message may carry 32767"),
        (Outgoing(TOPIC, b"1", properties={"KEYS": "k"}), "'KEYS' is reserved"),
        (Outgoing(TOPIC, b"1", properties={"p": ""}), "neither may be empty"),
    ]
    broken = Outgoing(TOPIC, b"1", properties={"p": "a\x02b"})
    async with _gateway(tmp_path) as (gateway, address):
        messages = [message for message, _ in refused]
        nameserver = gateway.cluster.nameserver
        sent = await send_by_java(version, tmp_path, nameserver, TOPIC, messages)
        assert all(each.failure for each in sent)
        async with AsyncProducer(address) as producer:
            for message, sentence in [*refused, (broken, "must not contain the characters 0x01")]:
                with pytest.raises(SendFailed, match=sentence) as caught:
                    await producer.send_batch([message])
                assert not caught.value.outcome_unknown


@both_versions
@pytest.mark.feature("key hash vectors")
async def test_the_shared_vectors_are_javas(version: str, tmp_path: Path) -> None:
    vectors = orjson.loads((ROOT / "tests/conformance/key_hash_vectors.json").read_bytes())
    counts = list(map(int, vectors[0]["queue"]))
    keys = [vector["key"] for vector in vectors]

    assert [
        [vector["hash"], *vector["queue"].values()] for vector in vectors
    ] == await hashes_by_java(version, tmp_path, keys, counts)
