"""Failing messages, and messages without an order key, from send to end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_core.remoting.message import OutgoingMessage
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import GROUP, Gateway, run_gateway
from tests.integration.upstream.dead_letters.failing_desk import Desk, dead_letters, until_dead
from tests.support.consumers import Handle, consuming
from thin_client import AsyncConsumer, Refused, Reject, Retry

QUICK = {"retry_intervals_ms": [40, 80]}
DEAD_LETTER = {"on_exhausted": "dead_letter"}


@asynccontextmanager
async def handling(
    brokers: Brokers,
    tmp_path: Path,
    handle: Handle,
    *,
    bodies: list[str],
    order_key: str = "KEY",
    **topic: Any,
) -> AsyncIterator[Gateway]:
    """Run a handler on one queue with *bodies*; ``key:rest`` has that key.

    At the end all messages must have finished in order.
    """
    async with run_gateway(
        tmp_path, brokers=brokers, queues=1, order_key=order_key, topic={**QUICK, **topic}
    ) as gateway:
        for body in bodies:
            key, colon, _ = body.partition(":")
            message = OutgoingMessage(gateway.topic, body.encode(), key=key if colon else None)
            await gateway.client.send(gateway.queue(0), message)
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=handle):
            yield gateway


@pytest.mark.feature("proxy: retries")
async def test_a_failed_message_comes_again_and_only_its_key_waits(
    brokers: Brokers, tmp_path: Path
) -> None:
    desk = Desk(**{"a:1": [ValueError("first"), ValueError("second")]})
    bodies = ["a:1", "a:2", "b:1", "b:2"]
    # Long enough for a slow machine to deliver the other key's second message.
    waits = {"retry_intervals_ms": [200, 800]}
    async with handling(brokers, tmp_path, desk, bodies=bodies, **waits) as gateway:
        await eventually(lambda: len(desk.seen) == 6)
        assert await dead_letters(gateway) == []

    assert [seen for seen in desk.seen if seen[0][0] == "a"] == [
        *(("a:1", attempt) for attempt in (1, 2, 3)),
        ("a:2", 1),
    ]
    first, second, third = desk.at["a:1"]
    assert second - first >= 0.2
    assert third - second >= 0.8
    assert desk.bodies.index("b:2") < desk.bodies.index("a:2")


@pytest.mark.feature("proxy: retries")
async def test_retry_says_itself_when(brokers: Brokers, tmp_path: Path) -> None:
    desk = Desk(**{"a:1": [Retry(after_s=0.5)]})
    async with handling(brokers, tmp_path, desk, bodies=["a:1"]):
        await eventually(lambda: len(desk.seen) == 2)

    first, second = desk.at["a:1"]
    assert second - first >= 0.5


@pytest.mark.feature("proxy: dead letters")
async def test_a_rejected_message_is_a_dead_letter_with_its_properties(
    brokers: Brokers, tmp_path: Path
) -> None:
    desk = Desk(**{"a:1": [Reject("no such customer")]})
    bodies = ["a:1", "a:2"]
    async with handling(brokers, tmp_path, desk, bodies=bodies, **DEAD_LETTER) as gateway:
        (dead,) = await until_dead(gateway, 1)
        await eventually(lambda: desk.seen == [("a:1", 1), ("a:2", 1)])

    assert dead.body == b"a:1"
    assert dead.key == "a"
    properties = dead.properties
    assert properties["DLQ_ORIGIN_TOPIC"] == gateway.topic
    assert properties["ORDERLANE_QUEUE"] == "broker-a_0"
    assert properties["ORDERLANE_OFFSET"] == "0"
    assert properties["ORDERLANE_ATTEMPTS"] == "1"
    assert properties["ORDERLANE_REASON"] == "no such customer"
    assert properties["ORDERLANE_ORDER_KEY"] == "a"


@pytest.mark.feature("proxy: dead letters")
async def test_after_max_deliveries_a_message_is_a_dead_letter_and_its_key_goes_on(
    brokers: Brokers, tmp_path: Path
) -> None:
    desk = Desk(**{"a:1": [ValueError("again")] * 9})
    policy = {**DEAD_LETTER, "max_deliveries": 3}
    async with handling(brokers, tmp_path, desk, bodies=["a:1", "a:2"], **policy) as gateway:
        (dead,) = await until_dead(gateway, 1)
        await eventually(lambda: "a:2" in desk.bodies)

    assert desk.seen == [("a:1", 1), ("a:1", 2), ("a:1", 3), ("a:2", 1)]
    assert dead.properties["ORDERLANE_ATTEMPTS"] == "3"
    assert "ValueError: again" in dead.properties["ORDERLANE_REASON"]


@pytest.mark.feature("proxy: retries")
async def test_under_block_a_message_is_tried_for_ever_and_its_key_waits(
    brokers: Brokers, tmp_path: Path
) -> None:
    desk = Desk(**{"a:1": [ValueError("again")] * 6})
    policy = {"max_deliveries": 2, "on_exhausted": "block"}
    async with handling(brokers, tmp_path, desk, bodies=["a:1", "a:2", "b:1"], **policy) as gateway:
        await eventually(lambda: "a:2" in desk.bodies)
        assert await dead_letters(gateway) == []

    assert [body for body in desk.bodies if body != "b:1"] == ["a:1"] * 7 + ["a:2"]
    assert desk.bodies.index("b:1") < 3


NO_KEY = ['{"id": "x", "n": 1}', "{broken", '{"other": 1}', "[]", "\\xff"]


@pytest.mark.feature("proxy: order")
async def test_keyless_messages_of_a_queue_keep_their_order_among_themselves(
    brokers: Brokers, tmp_path: Path
) -> None:
    """A body that is not JSON has no key: the policy applies, and nothing is lost."""
    desk = Desk(**{"{broken": [ValueError("once")]})
    async with handling(brokers, tmp_path, desk, bodies=NO_KEY, order_key="$.id"):
        await eventually(lambda: len(desk.seen) == len(NO_KEY) + 1)

    keyless = [body for body in desk.bodies if body != NO_KEY[0]]
    assert keyless == ["{broken", *NO_KEY[1:]]


@pytest.mark.feature("proxy: order")
async def test_keyless_messages_may_go_without_order(brokers: Brokers, tmp_path: Path) -> None:
    """Such messages cannot be parked: when given up they are dead-lettered, even by default."""
    desk = Desk(**{"{broken": [Retry(after_s=1.0), Reject("broken")]})
    async with handling(
        brokers, tmp_path, desk, bodies=NO_KEY, order_key="$.id", missing_key="unordered"
    ) as gateway:
        await eventually(lambda: len(desk.seen) == len(NO_KEY) + 1)
        (dead,) = await until_dead(gateway, 1)

    assert desk.seen[-1] == ("{broken", 2)
    assert (dead.body, dead.properties["ORDERLANE_REASON"]) == (b"{broken", "broken")


@pytest.mark.feature("proxy: dead letters")
async def test_keyless_messages_may_be_dead_letters(brokers: Brokers, tmp_path: Path) -> None:
    desk = Desk()
    async with handling(
        brokers, tmp_path, desk, bodies=NO_KEY, order_key="$.id", missing_key="dead_letter"
    ) as gateway:
        dead = await until_dead(gateway, len(NO_KEY) - 1)
        await eventually(lambda: len(desk.seen) == 1)

    assert sorted(letter.body.decode() for letter in dead) == sorted(NO_KEY[1:])
    assert desk.seen == [(NO_KEY[0], 1)]
    reasons = {letter.body.decode(): letter.properties["ORDERLANE_REASON"] for letter in dead}
    assert "$.id" in reasons["{broken"]


@pytest.mark.feature("proxy: retries")
async def test_the_history_of_failures_is_clean(brokers: Brokers, tmp_path: Path) -> None:
    desk = Desk(a=[ValueError("x")], b=[Reject("y")])
    topic = {**QUICK, **DEAD_LETTER}
    async with run_gateway(tmp_path, brokers=brokers, queues=2, topic=topic) as gateway:
        await gateway.send(["a", "b", "a", "b", "c"], body="{key}")
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await eventually(lambda: len(desk.seen) == 6)
    report = gateway.verify()

    assert report.as_dict()["by_id"] == {}
    assert report.counts.lost == 0


@pytest.mark.parametrize(
    ("group", "topics", "sentence"),
    [
        ("biling", None, "there is no group 'biling'"),
        (GROUP, ["order"], "'order'"),
    ],
)
async def test_an_unknown_name_is_refused_in_one_sentence(
    tmp_path: Path, group: str, topics: list[str] | None, sentence: str
) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy()
        consumer = AsyncConsumer(at.thrift, group=group, topics=topics)
        with pytest.raises(Refused) as refused:
            await consumer.run(Desk(), handle_signals=False)

    assert sentence in str(refused.value)
    assert GROUP in str(refused.value)
