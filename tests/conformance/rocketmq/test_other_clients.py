"""RocketMQ's clients for C++, Go and Node with our broker: they send, consume and transact."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from broker_core.names import Group, Topic
from broker_core.remoting.message import StoredMessage
from testkit.broker_process import Cluster, run_broker
from testkit.eventually import eventually
from tests.conformance.rocketmq.other_clients import Client, running

TOPIC, QUEUES, COUNT, WITHIN_S = Topic("orders"), 4, 40, 60
LANGUAGES = ("cpp", "go", "node")
ORDERLY = ("cpp", "go")  # ali-ons has no orderly consumer


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    times = {"transaction_timeout_s": 0.5, "transaction_check_interval_s": 0.5}
    async with run_broker(tmp_path, **times) as opened:
        client = await opened.client("ours")
        await client.create_topic(TOPIC, queues=QUEUES, broker=opened.broker_name)
        yield opened


async def stored(cluster: Cluster) -> list[StoredMessage]:
    client = await cluster.client("reader")
    found: list[StoredMessage] = []
    for queue in await client.queues(TOPIC):
        result = await client.pull(queue, group=Group("reader"), offset=0, max_messages=200)
        found += result.messages
    return found


async def send(cluster: Cluster, language: str, what: str = "send") -> None:
    async with running(language, what, cluster.nameserver, TOPIC, "senders", COUNT) as client:
        await until(client, lambda: {"sent": COUNT} in client.lines)


async def until(client: Client, done: Callable[[], bool]) -> None:
    try:
        await eventually(done, within_s=WITHIN_S)
    except TimeoutError:
        pytest.fail(f"{client.lines[-3:]}; its output: {''.join(client.said)[-2000:]}")


def by_number(messages: list[StoredMessage]) -> dict[int, StoredMessage]:
    return {int(each.properties["number"]): each for each in messages}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.feature("C++, Go and Node: producers")
async def test_sent_messages_are_stored_with_each_key_in_order(
    cluster: Cluster, language: str
) -> None:
    await send(cluster, language)
    messages = await stored(cluster)
    assert sorted(by_number(messages)) == list(range(COUNT))
    places = defaultdict(list)
    for number, each in sorted(by_number(messages).items()):
        assert (each.body, each.key) == (f"body-{number}".encode(), f"key-{number % 4}")
        assert each.tag == ("odd" if number % 2 else "even")
        places[each.key].append((each.queue_id, each.queue_offset))
    for of_key in places.values():
        assert len({queue for queue, _ in of_key}) == 1
        assert of_key == sorted(of_key)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("expression", ["*", "odd", "even || other"])
@pytest.mark.feature("C++, Go and Node: concurrent consumers with tags")
async def test_a_concurrent_consumer_gets_the_wanted_tags(
    cluster: Cluster, language: str, expression: str
) -> None:
    await send(cluster, "go")
    tags = {"even", "odd"} if expression == "*" else set(expression.split(" || "))
    wanted = {n for n in range(COUNT) if ("odd" if n % 2 else "even") in tags}
    async with running(
        language, "concurrent", cluster.nameserver, TOPIC, "g", expression
    ) as client:
        await until(client, lambda: len(client.handled) >= len(wanted))
    assert {int(each["number"]) for each in client.handled} == wanted
    for each in client.handled:
        number = int(each["number"])
        assert (each["key"], each["body"]) == (f"key-{number % 4}", f"body-{number}")


@pytest.mark.parametrize("language", ORDERLY)
@pytest.mark.parametrize("expression", ["*", "odd"])
@pytest.mark.feature("C++ and Go: orderly consumers")
async def test_an_orderly_consumer_gets_each_queue_in_order(
    cluster: Cluster, language: str, expression: str
) -> None:
    await send(cluster, "go")
    count = COUNT if expression == "*" else COUNT // 2
    async with running(language, "orderly", cluster.nameserver, TOPIC, "g", expression) as client:
        await until(client, lambda: len(client.handled) >= count)
    offsets = defaultdict(list)
    for each in client.handled:
        offsets[each["queue"]].append(each["offset"])
    assert sum(map(len, offsets.values())) == count
    assert all(each == sorted(each) for each in offsets.values())


@pytest.mark.feature("Go: transactions")
async def test_committed_messages_are_seen_and_rolled_back_ones_are_not(cluster: Cluster) -> None:
    """Half of them are decided at once, half when the broker checks."""
    async with running("go", "transactions", cluster.nameserver, TOPIC, "senders", COUNT) as client:
        wanted = {number for number in range(COUNT) if number % 4 in (0, 2)}

        for _ in range(WITHIN_S):
            if set(by_number(await stored(cluster))) >= wanted:
                break
            await asyncio.sleep(1)
        asked = {int(each["asked"]) for each in client.lines if "asked" in each}
        assert asked >= {number for number in range(COUNT) if number % 4 == 2}
    assert set(by_number(await stored(cluster))) == wanted
