"""Proxies share a group's queues under orderly locks, and hand them over without loss.

The numbers in the names are those of the rules in ``proxy/upstream/__init__.py``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest

from broker_core.client import BrokerClient, LockAnswer
from broker_core.clock import now_ns
from broker_core.names import Group, QueueName
from proxy.app import Proxy
from proxy.core.keys.ids import Epoch
from proxy.core.pipeline.effects import PipelineStatistics
from proxy.core.records.record import Clean, Delta, Own, Snapshot
from proxy.core.records.snapshot_parts import parts
from proxy.lane.group_lane import GroupLane
from proxy.upstream.records.ownership_log import TAIL, OwnershipLog
from proxy.upstream.records.queue_range import shown_end
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.support.consumers import consuming
from thin_client.message import Message

KEYS = [f"key-{number}" for number in range(50)]
#: A trust that exceeds restarts of a broker and pauses of the machine.
LONG_TRUST = {"lock.renewal_s": 0.5, "lock.trust_s": 9.9, "lock.request_timeout_s": 5.0}


def owned(proxy: Proxy) -> dict[QueueName, PipelineStatistics]:
    return {figures.queue: figures for lane in proxy.lanes for figures in lane.statistics()}


async def some_work(_message: Message) -> None:
    await asyncio.sleep(0.002)


def keys(count: int, seed: int = 1) -> list[str]:
    chooser = random.Random(seed)
    return [chooser.choice(KEYS) for _ in range(count)]


@pytest.mark.feature("proxy: two proxies")
async def test_two_proxies_share_eight_queues_four_and_four(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers) as gateway:
        first, at_first = await gateway.start_proxy()
        second, at_second = await gateway.start_proxy()
        async with (
            consuming(gateway, at_first.thrift, "a"),
            consuming(gateway, at_second.thrift, "b"),
        ):
            await eventually(lambda: len(owned(first)) == len(owned(second)) == 4)

            assert not owned(first).keys() & owned(second).keys()


@pytest.mark.feature("proxy: order")
async def test_everything_is_handled_once_and_in_order(brokers: Brokers, tmp_path: Path) -> None:
    async with run_gateway(tmp_path, brokers=brokers) as gateway:
        _, at = await gateway.start_proxy()
        await gateway.send(keys(3000))
        async with consuming(gateway, at.thrift, "a", handle=some_work, concurrency=32) as seen:
            await eventually(lambda: seen.handled >= 3000, within_s=90)
    report = gateway.verify()

    assert report.as_dict()["by_id"] == {}
    assert (report.counts.acknowledged, report.counts.duplicates) == (3000, 0)


@pytest.mark.feature("proxy: two proxies")
async def test_claim_4_a_drained_proxy_hands_over_without_repeating_anything(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers, **LONG_TRUST) as gateway:
        first, at_first = await gateway.start_proxy()
        second, at_second = await gateway.start_proxy()
        async with consuming(gateway, at_second.thrift, "b", handle=some_work) as seen_b:
            async with consuming(gateway, at_first.thrift, "a", handle=some_work) as seen_a:
                await eventually(lambda: len(owned(first)) == 4)
                await gateway.send(keys(4000))
                await eventually(lambda: seen_a.handled > 300)
                await gateway.close_proxy(first)
            await eventually(lambda: len(owned(second)) == 8)
            await eventually(lambda: seen_a.handled + seen_b.handled >= 4000, within_s=90)
    report = gateway.verify()

    assert report.as_dict()["by_id"] == {}
    assert report.counts.duplicates == 0
    assert seen_a.handled + seen_b.handled == 4000


@pytest.mark.feature("proxy: two proxies")
async def test_a_proxy_without_clients_gives_its_queues_back(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(
        tmp_path, brokers=brokers, **{"ownership.leave_after_s": 0.5}
    ) as gateway:
        first, at_first = await gateway.start_proxy()
        second, at_second = await gateway.start_proxy()
        async with consuming(gateway, at_second.thrift, "b"):
            async with consuming(gateway, at_first.thrift, "a"):
                await eventually(lambda: len(owned(first)) == 4)
            await eventually(lambda: len(owned(second)) == 8)

            assert owned(first) == {}


@pytest.mark.feature("proxy: ownership")
async def test_claim_2_a_queue_whose_lock_went_to_another_is_dropped_at_once(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers, queues=1) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "a"):
            await eventually(lambda: len(owned(proxy)) == 1)
            queue = next(iter(owned(proxy)))
            thief = await gateway.cluster.client("thief@1#1")
            as_proxy = await gateway.cluster.client(proxy.client_id)
            await as_proxy.unlock(gateway.group, [queue])
            async with asyncio.timeout(30):
                while (await thief.lock(gateway.group, [queue])).granted != {queue}:
                    # it may have been renewed meanwhile
                    await as_proxy.unlock(gateway.group, [queue])
            async with asyncio.timeout(30):
                while owned(proxy):
                    await thief.lock(gateway.group, [queue])  # the rival keeps it
                    await asyncio.sleep(0.1)
            await thief.unlock(gateway.group, [queue])
            await eventually(lambda: len(owned(proxy)) == 1)


@pytest.mark.feature("proxy: broker restart")
async def test_claim_3_after_a_lapse_of_trust_a_proxy_continues_if_the_queue_had_no_other_owner(
    brokers: Brokers, tmp_path: Path
) -> None:
    times = {"lock.renewal_s": 0.2, "lock.trust_s": 1.0, "lock.request_timeout_s": 0.2}
    async with run_gateway(tmp_path, brokers=brokers, queues=2, **times) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "a") as seen:
            await eventually(lambda: len(owned(proxy)) == 2)
            epochs = {queue: figures.epoch for queue, figures in owned(proxy).items()}
            await gateway.cluster.stop_broker(crash=True)
            await eventually(lambda: not _trusting(proxy))
            await gateway.cluster.start_broker()
            await eventually(lambda: _trusting(proxy) == 2)
            await gateway.send(keys(20))
            await eventually(lambda: seen.handled >= 20)

            assert {queue: figures.epoch for queue, figures in owned(proxy).items()} == epochs


def _trusting(proxy: Proxy) -> int:
    return sum(pipeline.may_hand_out(now_ns()) for lane in proxy.lanes for pipeline in lane.buffer)


@pytest.mark.feature("proxy: broker restart")
async def test_claim_3_nothing_is_delivered_under_a_lock_from_before_a_broker_s_restart(
    brokers: Brokers, tmp_path: Path
) -> None:
    """A restarted broker may forget locks: a rival had the queue long before trust ended."""
    async with run_gateway(tmp_path, brokers=brokers, queues=1, **LONG_TRUST) as gateway:
        proxy, at = await gateway.start_proxy()
        thief = await gateway.cluster.client("thief@1#1")
        async with consuming(gateway, at.thrift, "a") as seen:
            await eventually(lambda: _trusting(proxy) == 1)
            (queue, figures), *_ = owned(proxy).items()
            with patch.object(BrokerClient, "lock", _unanswered_to(proxy)):
                await gateway.cluster.stop_broker(crash=True)
                await eventually(lambda: _trusting(proxy) == 0, within_s=8)
                await gateway.cluster.start_broker()
                await thief.unlock(gateway.group, [queue])
                as_proxy = await gateway.cluster.client(proxy.client_id)
                await as_proxy.unlock(gateway.group, [queue])  # the embedded broker keeps its locks
                assert (await thief.lock(gateway.group, [queue])).granted == {queue}
                theirs = Own("thief@1#1", 500, 500, broker_start_ms=1, period=9)
                epoch = await OwnershipLog(thief).append(gateway.group, queue, theirs)
                await thief.unlock(gateway.group, [queue])
                assert figures.epoch < epoch
                assert _trusting(proxy) == 0
            await gateway.send(["a"])
            await eventually(lambda: seen.handled == 1)

            assert owned(proxy)[queue].epoch > epoch


def _unanswered_to(proxy: Proxy) -> Callable[..., Awaitable[LockAnswer]]:
    """Return ``BrokerClient.lock`` without answers for *proxy*."""
    lock = BrokerClient.lock

    async def lock_others(
        client: BrokerClient, group: Group, queues: Iterable[QueueName], **options: Any
    ) -> LockAnswer:
        if client.client_id == proxy.client_id:
            return LockAnswer(unanswered=frozenset(queues))
        return await lock(client, group, queues, **options)

    return lock_others


@pytest.mark.feature("proxy: broker restart")
async def test_claim_5_after_a_broker_restart_a_new_owner_waits_for_the_old_leases(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(
        tmp_path,
        brokers=brokers,
        queues=1,
        topic={"visibility_timeout_s": 1.0},
        **{"lock.trust_s": 4.6},
    ) as gateway:
        log = OwnershipLog(gateway.client)
        queue = (await gateway.client.queues(gateway.topic))[0]
        crashed = Own("dead@1#1", trust_ms=500, longest_lease_ms=700, broker_start_ms=1, period=3)
        await log.append(gateway.group, queue, crashed)
        await gateway.send(["a"])
        _, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "a") as seen:
            await eventually(lambda: seen.handled == 1)
    history = (tmp_path / "histories" / "proxy-0.jsonl").read_text().splitlines()
    events = [orjson.loads(line) for line in history]
    taken = next(event for event in events if event["e"] == "own+")
    first = next(event for event in events if event["e"] == "deliver")

    assert first["t_ns"] - taken["asked_ns"] > 1_000_000_000


@pytest.mark.feature("proxy: ownership")
async def test_a_new_owner_skips_messages_that_a_snapshot_has_as_finished(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers, queues=1) as gateway:
        await gateway.send([f"k{number}" for number in range(7)])  # before they are finished
        log = OwnershipLog(gateway.client)
        queue = (await gateway.client.queues(gateway.topic))[0]
        start = await gateway.client.locks_since_ms(queue.broker)
        epoch = await log.append(
            gateway.group, queue, Own("gone@1#1", 5000, 5000, broker_start_ms=start, period=1)
        )
        snapshot = Snapshot(epoch, base=1, read=5, unfinished=(1, 3))  # type: ignore[arg-type]
        await log.append(gateway.group, queue, *parts(snapshot))
        await log.append(gateway.group, queue, Clean(epoch))  # type: ignore[arg-type]
        _, at = await gateway.start_proxy()
        offsets: list[int] = []

        async def note(message: Message) -> None:
            offsets.append(message.offset)

        async with consuming(gateway, at.thrift, "a", handle=note):
            await eventually(lambda: len(offsets) == 4)

        assert sorted(offsets) == [1, 3, 5, 6]


@pytest.mark.feature("proxy: ownership")
async def test_a_snapshot_counts_at_any_distance_from_its_owners_first_record(
    brokers: Brokers, tmp_path: Path
) -> None:
    """It was written in the middle of a period, and the next owner built on it. The tail that is
    read first begins with a late record of an earlier owner.
    """
    async with run_gateway(tmp_path, brokers=brokers, queues=1) as gateway:
        log = OwnershipLog(gateway.client)
        queue = (await gateway.client.queues(gateway.topic))[0]

        async def own(number: int) -> Epoch:
            record = Own(f"gone@{number}#1", 5000, 5000, broker_start_ms=1, period=number)
            return Epoch(await log.append(gateway.group, queue, record))

        first = await own(1)
        await log.append(gateway.group, queue, *parts(Snapshot(first, 0, 4)))
        second = await own(2)
        at = await log.append(gateway.group, queue, *parts(Snapshot(second, 0, 5, (0, 1))))
        await log.append(gateway.group, queue, *parts(Snapshot(first, 0, 4)))
        for number in range(TAIL - 4):
            delta = Delta(second, at, 0, 5 + number, after=at + number + bool(number))
            await log.append(gateway.group, queue, delta)
        at = await log.append(gateway.group, queue, *parts(Snapshot(second, 1, 90, (1, 3, 7))))
        third = await own(3)
        newest = Delta(third, at, 3, 90, left=(1,), after=at)
        end = await log.append(gateway.group, queue, newest) + 1

        last, _ = await log.last(gateway.group, queue, before=end)

        assert (at, end) == (TAIL + 1, TAIL + 4)
        assert last is not None
        assert (last.damage, last.forgotten, last.snapshot_at) == (None, False, at)
        assert last.snapshot == Snapshot(third, 3, 90, (3, 7))


@pytest.mark.feature("proxy: where a group begins")
@pytest.mark.parametrize("start_from", ["earliest", "latest"])
async def test_a_new_group_begins_where_its_settings_say(
    brokers: Brokers, tmp_path: Path, start_from: str
) -> None:
    """A young queue has the stored offset 0 on RocketMQ, also for a new group."""
    async with run_gateway(tmp_path, brokers=brokers, queues=2) as gateway:
        gateway.settings["groups"][0]["start_from"] = start_from
        for receipt in await gateway.send(["a", "b", "c"]):
            await shown_end(gateway.client, receipt.queue, stored=receipt.offset + 1)
        bodies: list[bytes] = []

        async def note(message: Message) -> None:
            bodies.append(message.body)

        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "a", handle=note):
            await eventually(lambda: _trusting(proxy) == 2)
            await gateway.send(["last"] * 2, body="{key} {n}")
            expected = 5 if start_from == "earliest" else 2
            await eventually(lambda: b"last 5" in bodies and len(bodies) >= expected)

        assert len(bodies) == expected


@pytest.mark.slow
@pytest.mark.feature("proxy: broker restart")
async def test_order_holds_while_proxies_come_and_go_and_the_broker_restarts(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers) as gateway:
        await _churn(gateway)
    report = gateway.verify()

    assert report.as_dict()["by_id"] == {}
    assert report.counts.acknowledged == 7000


async def _churn(gateway: Gateway) -> None:
    done: set[str] = set()

    async def note(message: Message) -> None:
        await some_work(message)
        done.add(message.message_id)

    first, at_first = await gateway.start_proxy()
    await gateway.send(keys(3000, seed=2))
    async with consuming(gateway, at_first.thrift, "a", handle=note) as seen_a:
        await eventually(lambda: seen_a.handled > 200)
        second, at_second = await gateway.start_proxy()
        async with consuming(gateway, at_second.thrift, "b", handle=note) as seen_b:
            await eventually(lambda: _trusting(second) == 4)
            await gateway.send(keys(1000, seed=4))
            await eventually(lambda: seen_b.handled > 200)
            await gateway.restart_broker(crash=True)
            await gateway.send(keys(3000, seed=3))
            await gateway.close_proxy(first)
            await eventually(lambda: len(done) == 7000, within_s=60)


@pytest.mark.feature("proxy: ownership")
@pytest.mark.failing_tasks
async def test_a_bug_while_reading_restarts_the_queue_and_loses_nothing(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {
        "lock.renewal_s": 0.2,
        "lock.trust_s": 1.0,
        "lock.request_timeout_s": 0.2,
        "lock.broker_lock_expiry_s": 2.0,
    }
    async with run_gateway(
        tmp_path, brokers=brokers, queues=1, topic={"visibility_timeout_s": 1.0}, **times
    ) as gateway:
        proxy, at = await gateway.start_proxy()
        async with consuming(gateway, at.thrift, "a") as seen:
            await eventually(lambda: len(owned(proxy)) == 1)
            good = GroupLane.on_messages
            monkeypatch.setattr(GroupLane, "on_messages", _bug)
            await gateway.send(keys(5))
            await eventually(lambda: not owned(proxy))
            monkeypatch.setattr(GroupLane, "on_messages", good)
            await eventually(lambda: seen.handled >= 5)


def _bug(*_arguments: object, **_named: object) -> None:
    raise KeyError("a bug")
