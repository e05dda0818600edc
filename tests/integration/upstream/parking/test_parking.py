"""Parked and redriven keys, from failure to redrive."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.client import BrokerClient
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import StoredMessage
from proxy.admin.snapshots import groups_view
from proxy.app import Proxy
from proxy.cli import key as command_line
from proxy.core.pipeline.effects import PipelineStatistics
from proxy.core.records.parked_key import parked_topic
from proxy.diagnosis.diagnose import diagnose
from proxy.diagnosis.facts import Facts, ProxyFacts, group_of
from proxy.diagnosis.findings import Cause
from proxy.errors import OrderlaneError
from proxy.upstream.parking.retention import look_at
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.integration.upstream.parking.parking_desk import (
    PARK,
    Desk,
    copied,
    key,
    parking,
    send,
    view,
)
from tests.support.consumers import consuming
from tests.support.verbs import orderlane

#: No queue is doubtful on a machine that pauses for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


async def parked(gateway: Gateway, count: int) -> list[StoredMessage]:
    """Return the messages in the first queue's twin once there are *count*; one pull may return a
    part.
    """
    twin = QueueName(parked_topic(gateway.group, gateway.topic), gateway.cluster.broker_name, 0)
    found: list[StoredMessage] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            pulled = await gateway.client.pull(
                twin, group=Group("undertaker"), offset=len(found), suspend_ms=1000
            )
            found += pulled.messages
    return found


def figures(proxy: Proxy, gateway: Gateway) -> PipelineStatistics:
    return parking(proxy, gateway).pipeline.statistics()


def put_on_record(gateway: Gateway) -> None:
    """Write an audit record for redrives that bypass the desk in these tests."""
    about = {"by": "a test", "reason": "so", "before": {}, "after": {}, "phase": "begin"}
    gateway.sends.write("audit", id="test", **about)


async def test_a_parked_key_waits_in_order_and_is_redriven_in_order(
    brokers: Brokers, tmp_path: Path
) -> None:
    desk = Desk("a")
    async with run_gateway(
        tmp_path, brokers=brokers, queues=1, topic=PARK, lock=PATIENT
    ) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "a", "b", "a", "a", "b")
            await eventually(lambda: desk.done["b"] == [2, 5])
            await eventually(lambda: copied(proxy, gateway) == 3)
            assert desk.failed["a"] == 2
            copies = await parked(gateway, 3)
            assert [copy.body for copy in copies] == [b"a:1", b"a:3", b"a:4"]
            properties = copies[0].properties
            assert properties["ORDERLANE_ATTEMPTS"] == "2"
            assert properties["ORDERLANE_ORDER_KEY"] == "a"

            desk.broken.clear()
            await send(gateway, "a", "b")
            await eventually(lambda: view(proxy, gateway)["copies"] == 4)
            await eventually(lambda: view(proxy, gateway)["not_copied"] == 0)
            assert await key(at, gateway, "parked") == [view(proxy, gateway)]
            asked = await key(at, gateway, "redrive", key="a", dry_run=True)
            assert (asked["state"], asked["copies"]) == ("parked", 4)
            with pytest.raises(OrderlaneError, match="key 'c' is not parked in the queues of"):
                await key(at, gateway, "redrive", key="c")
            asked = await key(at, gateway, "redrive", key="a")
            assert asked["state"] == "redriven"
            await eventually(lambda: desk.done["a"] == [1, 3, 4, 6])
            await eventually(lambda: not parking(proxy, gateway).keys())
            await send(gateway, "a")
            await eventually(lambda: desk.done["a"][-1] == 8)
            park = partial(command_line.COMMANDS["park"], reason="a test", http=at.http)
            with pytest.raises(OrderlaneError, match="has no unfinished message in memory"):
                await asyncio.to_thread(park, gateway.group, "unused")
    report = gateway.verify()
    assert report.clean, report.violations


async def test_parked_keys_and_a_redrive_continue_at_the_next_owner(
    tmp_path: Path,
) -> None:
    """The name and reason of the operator who parked it move along."""
    desk = Desk("a")
    async with run_gateway(tmp_path, queues=1, topic=PARK, lock=PATIENT) as gateway:
        put_on_record(gateway)
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "first", handle=desk):
            await send(gateway, "a", "b", "a", "a")
            await eventually(lambda: copied(proxy, gateway) == 3)
            before = parking(proxy, gateway)
        await gateway.close_proxy(proxy)
        # An owner that has written its last record refuses requests.
        assert not before.redrive(b"a", by="a test", audit="test")
        assert not before.stop(b"a", by="a test")
        await send(gateway, "a", "b")
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "second", handle=desk):
            await eventually(lambda: copied(proxy, gateway) == 1)
            assert desk.failed["a"] == 2  # it was not delivered again
            told = view(proxy, gateway)
            assert (told["by"], told["reason"]) == ("failure policy", "ValueError: broken")
            await eventually(
                lambda: parking(proxy, gateway).redrive(b"a", by="a test", audit="test")
            )
            # It fails again: the redrive stops, and nothing is copied twice.
            await eventually(lambda: parking(proxy, gateway).keys() == {b"a": False})
            assert desk.failed["a"] == 4
            assert [copy.body for copy in await parked(gateway, 4)] == [
                *(b"a:1", b"a:3", b"a:4", b"a:5"),
            ]
            desk.broken.clear()
            assert parking(proxy, gateway).redrive(b"a", by="a test", audit="test")
            await eventually(lambda: desk.done["a"] == [1, 3, 4, 5])
            await eventually(lambda: not parking(proxy, gateway).keys())
    report = gateway.verify()
    assert report.clean, report.violations


async def test_keyless_messages_that_stay_in_order_are_parked_together(tmp_path: Path) -> None:
    """Their key is named 0xff in texts and commands; other keys continue."""
    desk = Desk("None")
    async with run_gateway(tmp_path, queues=1, topic=PARK, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await gateway.send([None, "b", None], body="{key}:{n}")
            await eventually(lambda: copied(proxy, gateway) == 2)
            await eventually(lambda: desk.done["b"] == [2])
            desk.broken.clear()
            asked = await key(at, gateway, "redrive", key="0xff")
            assert (asked["key"], asked["copies"]) == ("0xff", 2)
            await eventually(lambda: desk.done["None"] == [1, 3])
            await eventually(lambda: not parking(proxy, gateway).keys())
    report = gateway.verify()
    assert report.clean, report.violations


async def test_a_key_waits_and_it_is_reported_while_its_parked_topic_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, allowed = BrokerClient.create_topic, asyncio.Event()

    async def refuse(client: BrokerClient, topic: Topic, **how: Any) -> None:
        if topic.startswith("%PARK%") and not allowed.is_set():
            raise BrokerError(ResponseCode.NO_PERMISSION, "you may not create topics")
        await create(client, topic, **how)

    monkeypatch.setattr(BrokerClient, "create_topic", refuse)
    desk = Desk("a")
    async with run_gateway(tmp_path, queues=1, topic=PARK, lock=PATIENT) as gateway:
        put_on_record(gateway)
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "a", "b", "a", "b")
            await eventually(lambda: desk.done["b"] == [2, 4])
            await eventually(lambda: bool(figures(proxy, gateway).trouble))
            assert figures(proxy, gateway).uncopied == 2
            told = (
                "2 messages of parked keys of orders/broker-a_0 cannot be copied yet to"
                r" %PARK%[0-9a-f]{16}: .* you may not create topics"
            )
            where = ("--http", at.http, "--nameserver", gateway.cluster.nameserver)
            _, out, _ = await orderlane("doctor", *where, "-o", "json")
            (found,) = (row for row in orjson.loads(out) if row["check"] == "group")
            assert (found["result"], found["cause"]) == ("wrong", "not_copied")
            assert re.search(told, found["finding"])
            assert (copied(proxy, gateway), desk.failed["a"]) == (0, 2)

            allowed.set()
            await eventually(lambda: copied(proxy, gateway) == 2)
            assert (figures(proxy, gateway).trouble, figures(proxy, gateway).uncopied) == ("", 0)
            desk.broken.clear()
            assert parking(proxy, gateway).redrive(b"a", by="a test", audit="test")
            await eventually(lambda: desk.done["a"] == [1, 3])
    report = gateway.verify()
    assert report.clean, report.violations


async def test_copies_stored_while_another_may_own_the_queue_finish_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once ownership is certain again they are copied again; the first copies are repeats."""
    store, stored = BrokerClient.send_batch, asyncio.Event()
    async with run_gateway(tmp_path, queues=1, topic=PARK, lock=PATIENT) as gateway:
        put_on_record(gateway)
        proxy, at = await gateway.start_proxy()

        async def store_in_doubt(
            client: BrokerClient, queue: QueueName, messages: Any, **about: Any
        ) -> Any:
            receipts = await store(client, queue, messages, **about)
            if queue.topic.startswith("%PARK%") and not stored.is_set():
                parking(proxy, gateway).pipeline.doubt()
                stored.set()
            return receipts

        monkeypatch.setattr(BrokerClient, "send_batch", store_in_doubt)
        desk = Desk("a")
        await send(gateway, "a", "a")
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await asyncio.wait_for(stored.wait(), 30)
            found = parking(proxy, gateway)
            found.pipeline.trust_until(0)  # like a renewal
            await eventually(lambda: copied(proxy, gateway) == 2)
            bodies = [copy.body for copy in await parked(gateway, 4)]
            assert bodies == [b"a:1", b"a:2"] * 2
            desk.broken.clear()
            await eventually(lambda: found.redrive(b"a", by="a test", audit="test"))
            await eventually(lambda: not found.keys())
            assert desk.done["a"] == [1, 2]
    report = gateway.verify()
    assert report.clean, report.violations


@pytest.mark.parametrize("policy", ["park", "block"])
async def test_a_failing_key_that_nears_the_end_of_retention(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is parked, or reported by an alarm; other keys are unaffected."""
    desk = Desk("a")
    slow = {"on_exhausted": policy, "retry_intervals_ms": [60_000]}
    async with run_gateway(tmp_path, queues=1, topic=slow, lock=PATIENT) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "desk", handle=desk):
            await send(gateway, "b", "b", "a")
            await eventually(lambda: desk.failed["a"] == 1 and len(desk.done["b"]) == 2)
            found = parking(proxy, gateway)
            await eventually(lambda: bool(found.pipeline.leases.attempts))
            await look_at(proxy.context, found)
            assert not found.keys()  # the broker never deleted anything
            monkeypatch.setattr(BrokerClient, "min_offset", first_is_kept)
            monkeypatch.setattr(
                "proxy.upstream.parking.retention.wall_ms", lambda: wall_ms() + 3_600_000
            )
            await look_at(proxy.context, found)
            lane = found.lane
            assert lane.counts[gateway.topic].near_retention == 1
            assert found.keys() == ({b"a": False} if policy == "park" else {})
            if policy == "park":
                await eventually(lambda: copied(proxy, gateway) == 1)
                assert view(proxy, gateway)["by"] == "retention margin"
                await eventually(lambda: view(proxy, gateway)["copies"] == 1)
                await look_at(proxy.context, found)  # and its copy as well
                assert lane.counts[gateway.topic].near_retention == 2
            assert sum(figures.near_retention for figures in lane.statistics()) == 1
            seen = ProxyFacts("p:1", group=group_of((await groups_view([lane]))[gateway.group]))
            facts = Facts(gateway.group, wall_ms(), proxies=(seen,))
            whats = {each.cause: each.what for each in diagnose(facts)}
            place = whats[Cause.NEAR_RETENTION].partition(" has ")[0]
            assert place.startswith("1 key of ")
    report = gateway.verify()
    # otherwise the message is unfinished
    assert report.clean == (policy == "park"), report.violations


async def first_is_kept(_client: BrokerClient, queue: QueueName) -> int:
    """Return the first offset as if the message before it had been deleted, but no copy."""
    return 0 if queue.topic.startswith("%") else 1
