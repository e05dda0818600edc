"""Figures of queues that a proxy does not own, and the lag of topics without clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from broker_core.client import QueueRange
from broker_core.errors import BrokerError, ConnectionLost, RequestTimeout
from broker_core.names import Group, QueueName, Topic
from proxy.core.group.known_queue import KnownQueue, QueueOwner, Source, figures_of
from proxy.lane.group_lane import GroupLane
from proxy.upstream.records.ownership_log import OwnershipLog
from proxy.upstream.unowned_queues import UnownedQueues
from testkit.lanes import GROUP, group_settings, make_lane
from testkit.messages import message
from testkit.pipelines import pipeline
from tests.support.fake_broker_client import FakeBrokerClient, queue
from tests.support.queue_looks import count_looks

ORDERS, REFUNDS = Topic("orders"), Topic("refunds")


def looking(broker: FakeBrokerClient, *lanes: GroupLane) -> UnownedQueues:
    client: Any = broker
    return UnownedQueues(client, OwnershipLog(client), lanes)


def broker_with(*messages: int) -> FakeBrokerClient:
    """Return a broker whose queues of the topic orders have *messages* each."""
    broker = FakeBrokerClient(orders=len(messages), refunds=1)
    for number, count in enumerate(messages):
        broker.store(*(message(n, queue_id=number) for n in range(count)))
    return broker


async def test_messages_behind_the_committed_offsets_wait() -> None:
    broker, lane = broker_with(10, 4, 0), make_lane()
    broker.committed[lane.name, queue(0)] = 7
    lag = looking(broker, lane)
    assert lag.lag_without_clients() == {}  # not asked yet
    await lag.look()
    assert lag.lag_without_clients() == {(GROUP, ORDERS): 3 + 4}


async def test_messages_that_retention_deleted_do_not_wait() -> None:
    broker, lane = broker_with(10), make_lane()
    broker.lowest[queue(0)] = 6
    lag = looking(broker, lane)
    await lag.look()
    assert lag.lag_without_clients() == {(GROUP, ORDERS): 4}


async def test_a_group_that_begins_at_the_end_waits_for_nothing_yet() -> None:
    broker, lane = broker_with(10), make_lane(group_settings(start_from="latest"))
    lag = looking(broker, lane)
    await lag.look()
    assert lag.lag_without_clients() == {(GROUP, ORDERS): 0}
    broker.committed[lane.name, queue(0)] = 9
    await lag.look()
    assert lag.lag_without_clients() == {(GROUP, ORDERS): 1}


async def test_a_topic_with_clients_is_left_out_at_once() -> None:
    broker, lane = broker_with(3), make_lane(group_settings(topics=("orders", "refunds")))
    lag = looking(broker, lane)
    await lag.look()
    assert lag.lag_without_clients() == {(GROUP, ORDERS): 3, (GROUP, REFUNDS): 0}
    lane.presence.show([ORDERS], shows_all=False)
    assert lag.lag_without_clients() == {(GROUP, REFUNDS): 0}
    lane.presence.show([ORDERS, REFUNDS], shows_all=True)
    assert lag.lag_without_clients() == {}
    lane.presence.leave()
    assert lag.lag_without_clients() == {(GROUP, ORDERS): 3, (GROUP, REFUNDS): 0}


async def test_the_lag_costs_as_much_as_there_are_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scrape took the square of the number of topics, in which no client was served."""
    looks = count_looks(monkeypatch)
    costs = []
    for count in (10, 20):
        names = {f"t{number}": 1 for number in range(count)}
        lag = looking(FakeBrokerClient(**names), make_lane(group_settings(topics=tuple(names))))
        await lag.look()
        looks.clear()
        assert lag.lag_without_clients() == {(GROUP, Topic(name)): 0 for name in names}
        costs.append(len(looks))
    assert costs[1] <= 2 * costs[0]


async def test_broadcast_groups_have_no_offsets_of_their_own() -> None:
    lag = looking(broker_with(3), make_lane(group_settings(mode="broadcast")))
    await lag.look()
    assert lag.lag_without_clients() == {}


async def test_a_topic_that_its_broker_refuses_is_absent_and_others_are_not() -> None:
    broker, lane = broker_with(3), make_lane(group_settings(topics=("orders", "refunds")))
    lag = looking(broker, lane)
    await lag.look()
    broker.fails["max_offset", queue(0)] = BrokerError(1, "no", request="max_offset")
    await lag.look()
    assert lag.lag_without_clients() == {(GROUP, REFUNDS): 0}
    assert lag.brokers_away == {}


async def test_figures_of_a_silent_broker_stay_with_their_age_and_the_reason() -> None:
    broker, lane = broker_with(3, 2), make_lane()
    seen = looking(broker, lane)
    await seen.look()
    before = {each.queue: each for each in seen.of(lane)}
    assert {each.lag for each in before.values()} == {3, 2}
    broker.fails["min_offset"] = ConnectionLost("gone")
    await asyncio.sleep(60)
    await seen.look()
    after = {each.queue: each for each in seen.of(lane)}
    assert after == {at: replace(each, trouble="gone") for at, each in before.items()}
    assert seen.brokers_away == {"broker-a": "gone"}
    assert seen.lag_without_clients() == {}
    broker.fails.clear()
    await seen.look()
    assert seen.brokers_away == {}
    assert seen.lag_without_clients() == {(GROUP, ORDERS): 5}


async def test_a_broker_that_never_answered_leaves_everything_unknown() -> None:
    broker, lane = broker_with(3), make_lane()
    broker.fails["min_offset"] = ConnectionLost("gone")
    seen = looking(broker, lane)
    assert (seen.of(lane), seen.missed(lane)) == ([], {"orders"})
    await seen.look()
    (known,) = seen.of(lane)
    assert seen.missed(lane) == frozenset()
    assert known == KnownQueue(queue=queue(0), trouble="gone")
    figures = figures_of([known])
    assert (figures.lag, figures.unfinished, figures.parked_keys) == (None, None, None)
    assert (figures.queues, figures.unowned, figures.unknown) == (1, 1, 1)


async def test_a_released_queue_keeps_its_figures_until_it_is_looked_at() -> None:
    broker, lane = broker_with(3), make_lane()
    seen = looking(broker, lane)
    await seen.look()
    owned = pipeline(messages=[message(number) for number in range(3)])
    lane.add(owned)
    assert seen.of(lane) == []
    lane.remove(owned)
    (released,) = seen.of(lane)
    assert (released.source, released.unfinished, released.lag) == (Source.RELEASED, 3, 3)
    await asyncio.sleep(1)
    await seen.look()
    (known,) = seen.of(lane)
    assert (known.source, known.owned) == (Source.BROKERS, QueueOwner.FREE)


async def test_a_topic_without_a_route_is_missed_until_its_queues_are_known() -> None:
    broker, lane = broker_with(3), make_lane()
    broker.fails["queues"] = ConnectionLost("gone")
    seen = looking(broker, lane)
    await seen.look()
    await seen.look()
    assert (seen.of(lane), seen.missed(lane)) == ([], {"orders"})
    broker.fails.clear()
    await seen.look()
    broker.fails["queues"] = ConnectionLost("gone")
    await seen.look()
    assert seen.missed(lane) == frozenset()
    assert [each.trouble for each in seen.of(lane)] == ["gone"]


class OneSilent(FakeBrokerClient):
    """Broker B, with a queue of each topic, does not answer while it is ``silent``."""

    silent = True

    def __init__(self, *topics: str) -> None:
        super().__init__(**dict.fromkeys(topics, 1))
        for topic in topics:
            self.stored[QueueName(Topic(topic), "broker-b", 0)] = []
        self.timeouts_of_b = 0

    async def queue_ranges(
        self, queues: Iterable[QueueName], *, group: Group | None = None
    ) -> dict[QueueName, QueueRange]:
        wanted = list(queues)
        if self.silent and any(queue.broker == "broker-b" for queue in wanted):
            self.timeouts_of_b += 1
            await asyncio.sleep(3)
            raise RequestTimeout("no answer in time")
        return await super().queue_ranges(wanted, group=group)


async def test_a_silent_broker_costs_a_look_one_timeout_however_many_groups_there_are() -> None:
    lanes = [make_lane(group_settings(f"g{number}")) for number in range(8)]
    broker = OneSilent("orders", *(f"%DLQ%{lane.name}" for lane in lanes))
    broker.store(*(message(n) for n in range(3)))
    seen, began = looking(broker, *lanes), asyncio.get_running_loop().time()
    await seen.look()
    assert asyncio.get_running_loop().time() - began < 5
    assert broker.timeouts_of_b == 1
    for lane in lanes:
        assert {each.queue.broker: each.lag for each in seen.of(lane)} == {
            "broker-a": 3,
            "broker-b": None,
        }
        assert seen.dead_letters(lane.name) == (None, None)
    assert seen.brokers_away == {"broker-b": "no answer in time"}


async def test_dead_letters_that_were_counted_stay_with_their_age() -> None:
    lane = make_lane()
    broker = OneSilent("orders", f"%DLQ%{lane.name}")
    broker.silent = False
    seen = looking(broker, lane)
    await seen.look()
    count, at_ms = seen.dead_letters(lane.name)
    assert (count, at_ms is None) == (0, False)
    broker.silent = True
    await asyncio.sleep(60)
    await seen.look()
    assert seen.dead_letters(lane.name) == (0, at_ms)


async def test_a_group_that_brokers_refuse_hides_no_other_groups_queues() -> None:
    refused, other = make_lane(group_settings("refused")), make_lane()

    class Refusing(FakeBrokerClient):
        refuses = False

        async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
            if self.refuses and group == "refused":
                raise BrokerError(16, "no permission", request="members")
            return []

    broker = Refusing(orders=1)
    seen = looking(broker, refused, other)
    await seen.look()
    broker.refuses = True
    broker.store(*(message(n) for n in range(3)))
    await seen.look()
    assert [(each.lag, each.trouble) for each in seen.of(other)] == [(3, "")]
    (known,) = seen.of(refused)
    assert "no permission" in known.trouble
    assert seen.brokers_away == {}


class _Lanes(tuple[GroupLane, ...]):
    """Lanes that count how often each is looked at."""

    asked = 0

    def __iter__(self) -> Any:
        for lane in super().__iter__():
            _Lanes.asked += 1
            yield lane


async def test_a_look_costs_as_much_as_there_are_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.upstream.unowned_queues.now_ns", lambda: 1)
    costs = []
    for groups in (10, 20):
        lanes = _Lanes(make_lane(group_settings(f"g{number}")) for number in range(groups))
        client: Any = broker_with(1)
        seen = UnownedQueues(client, OwnershipLog(client), lanes)
        _Lanes.asked = 0
        await seen.look()
        costs.append(_Lanes.asked)
    assert costs[1] <= 2 * costs[0]


async def test_a_bug_with_one_group_hides_no_other_groups_queues() -> None:
    class Faulty(FakeBrokerClient):
        async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
            if group == "faulty":
                raise ValueError("a bug")
            return []

    broker = Faulty(orders=1, refunds=1)
    broker.store(*(message(n, queue_id=0) for n in range(3)))
    faulty, sound = make_lane(group_settings("faulty")), make_lane()
    seen = looking(broker, faulty, sound)
    await seen.look()
    assert [each.lag for each in seen.of(sound)] == [3]
    assert (seen.of(faulty), seen.missed(faulty)) == ([], {"orders"})


async def test_figures_of_a_group_stay_with_the_reason_if_the_look_at_it_fails() -> None:
    class Faulty(FakeBrokerClient):
        works = True

        async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
            if not self.works:
                raise ValueError("a bug")
            return []

    broker, lane = Faulty(orders=1), make_lane()
    seen = looking(broker, lane)
    await seen.look()
    (before,) = seen.of(lane)
    broker.works = False
    await seen.look()
    (after,) = seen.of(lane)
    assert after == replace(before, trouble=after.trouble)
    assert "see the proxy's log" in after.trouble
