"""Filters and transforms between a producer and thin clients, end to end."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson

from broker_core.names import Group, QueueName
from broker_core.remoting.message import OutgoingMessage
from proxy.settings.groups import TopicSettings
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from tests.support.consumers import consuming
from thin_client import Message

KEYS = ("a", "b", "c", "d", "broken")
ACTIONS: list[dict[str, Any]] = [
    {"filter": {"where": "!ends_with(to_string(body.n), '3')"}},
    {"filter": {"where": "body.id != 'broken' || body.n"}},
    {"transform": {"to": "{key: key, number: body.n}"}},
]


class Desk:
    """A handler of transformed messages; it fails once on each seventh message."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)
        self.failed: set[int] = set()

    async def __call__(self, message: Message) -> None:
        body = orjson.loads(message.body)
        assert body.keys() == {"key", "number"}
        assert body["key"] == message.key
        if body["number"] % 7 == 0 and body["number"] not in self.failed:
            self.failed.add(body["number"])
            raise ValueError("not yet")
        await asyncio.sleep(0.001)
        self.numbers[body["key"]].append(body["number"])


def wanted(key: str, *, of: int) -> list[int]:
    """Return the numbers of the messages of *key* that the handler should have finished, in
    order.
    """
    mine = [n for n in range(1, of + 1) if KEYS[(n - 1) % len(KEYS)] == key]
    return [] if key == "broken" else [n for n in mine if n % 10 != 3]


async def test_order_holds_through_filters_transforms_failures_and_a_hand_over(
    tmp_path: Path,
) -> None:
    """Handlers fail, an action fails on one key, and a second proxy takes over queues."""
    topic = {
        "actions": ACTIONS,
        "retry_intervals_ms": [10, 20],
        "max_deliveries": 3,
        "on_exhausted": "dead_letter",
    }
    desk = Desk()
    async with run_gateway(tmp_path, queues=2, topic=topic) as gateway:
        _, first = await gateway.start_proxy()
        async with consuming(gateway, first.thrift, "left", handle=desk):
            await gateway.send(KEYS * 12)
            await eventually(lambda: len(desk.failed) > 3, within_s=20)
            _, second = await gateway.start_proxy()
            async with consuming(gateway, second.thrift, "right", handle=desk, max_run=4):
                await gateway.send(KEYS * 12)
                await eventually(gateway.all_finished, within_s=40)
        filtered = {each["by"] for each in gateway.events("finish") if "by" in each}
        reasons = {each["reason"] for each in gateway.events("act_fail")}
        dead = await gateway.client.pull(
            QueueName(gateway.dead_letter_topic, "broker-a", 0),
            group=Group("undertaker"),
            offset=0,
            suspend_ms=0,
        )
    report = gateway.verify()
    assert report.clean, report
    assert {key: list(dict.fromkeys(desk.numbers[key])) for key in KEYS} == {
        key: wanted(key, of=len(KEYS) * 24) for key in KEYS
    }
    assert filtered == {"action 1"}
    assert reasons == {"action 2 (filter) gave a number, neither true nor false"}
    for letter in dead.messages:
        assert orjson.loads(letter.body)["id"] == "broken", "as it was sent"
        assert letter.properties["ORDERLANE_ATTEMPTS"] == "3"
        assert letter.properties["ORDERLANE_REASON"] in reasons


async def test_a_pull_waits_through_a_backlog_of_which_nothing_is_wanted(tmp_path: Path) -> None:
    """Each pass of the proxy is short, and the next one follows without another request."""
    found: list[bytes] = []

    async def note(message: Message) -> None:
        found.append(message.body)

    topic = {
        "actions": [{"filter": {"where": "body.id == 'wanted'"}}, {"transform": {"to": "key"}}]
    }
    async with run_gateway(tmp_path, queues=1, order_key="QID", topic=topic) as gateway:
        await gateway.send([*["unwanted"] * 3000, "wanted"])
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "patient", handle=note):
            await eventually(lambda: found == [b"wanted"], within_s=30)
            await eventually(gateway.all_finished, within_s=20)
    assert gateway.verify().clean


async def test_shadow_traffic_reaches_only_groups_that_ask_for_it(tmp_path: Path) -> None:
    found: list[bytes] = []

    async def note(message: Message) -> None:
        found.append(message.body)

    async with run_gateway(tmp_path, queues=1) as gateway:
        for body, properties in ((b"load", {"isPressureTraffic": "true"}), (b"real", {})):
            message = OutgoingMessage(gateway.topic, body, key="k", properties=properties)
            await gateway.client.send(gateway.queue(0), message)
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=note):
            await eventually(lambda: b"real" in found, within_s=20)
    assert found == [b"real"]


async def test_a_fixed_expression_applies_from_the_next_retry(tmp_path: Path) -> None:
    """The failed message comes first; those behind it waited."""
    found: list[bytes] = []

    async def note(message: Message) -> None:
        found.append(message.body)

    topic = {
        "actions": [{"transform": {"to": "body.nmae"}}],
        "retry_intervals_ms": [50],
        "on_exhausted": "block",
    }
    async with run_gateway(tmp_path, queues=1, topic=topic) as gateway:
        await gateway.send(["a", "a"], body='{{"name": "n{n}"}}')
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=note):
            await eventually(lambda: len(gateway.events("act_fail")) >= 2, within_s=20)
            lane = next(iter(proxy.lanes))
            mended = {"actions": [{"transform": {"to": "body.name"}}]}
            settings = lane.settings.topics[0].model_dump(exclude_unset=True)
            changed = TopicSettings.model_validate({**settings, **mended})
            lane.apply(lane.settings.model_copy(update={"topics": (changed,)}))
            await eventually(lambda: found == [b"n1", b"n2"], within_s=20)
            await eventually(gateway.all_finished, within_s=20)
    assert gateway.verify().clean
