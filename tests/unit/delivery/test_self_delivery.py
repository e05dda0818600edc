"""The topics that the proxy delivers itself follow changing settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker_core.names import Group, QueueName, Topic
from proxy.core.group.group_buffer import Batch, PullWish
from proxy.core.jobs.window import Budget
from proxy.delivery.self_delivery import OpenConnections, SelfDelivery
from proxy.lane.group_lane import GroupLane
from proxy.lane.topic_rules import rules_of
from proxy.settings.delivery import DeliverySettings
from proxy.settings.groups import GroupSettings
from testkit.eventually import eventually
from testkit.lanes import GROUP, Listener, make_lane
from testkit.messages import keyed
from testkit.pipelines import Budgets, pipeline
from tests.unit.delivery.deliveries import Target

URL = "redis://127.0.0.1:6379/0"


def group(**concurrency: int | None) -> GroupSettings:
    """Return a group of topics by name, each with the concurrency of its delivery; None: pulled."""
    topics: list[dict[str, Any]] = []
    for name, number in concurrency.items():
        redis = {"url": URL, "commands": [["DEL", "k"]], "concurrency": number}
        actions = [] if number is None else [{"redis": redis}]
        topics.append({"name": name, "order_key": "KEY", "actions": actions})
    return GroupSettings.model_validate({"name": GROUP, "topics": topics})


class Dispatcher(Listener):
    delivery: SelfDelivery

    def on_ready(self, lane: GroupLane) -> None:
        self.delivery.dispatch(lane)


@dataclass(slots=True)
class Site:
    lane: GroupLane
    listener: Dispatcher
    delivery: SelfDelivery
    targets: list[Target] = field(default_factory=list)

    def apply(self, settings: GroupSettings) -> None:
        self.lane.apply(settings)
        self.delivery.apply(self.lane)

    def feed(self, topic: str, *keys: str) -> None:
        wanted = self.lane.settings.topic(topic)
        assert wanted is not None
        budgets = Budgets(Budget(1 << 40), self.lane.leases_of_group)
        of = QueueName(Topic(topic), "broker-a", 0)
        owned = pipeline(rules_of(wanted), of=of, budgets=budgets)
        self.lane.add(owned)
        self.lane.on_messages(
            owned, [keyed(n, key) for n, key in enumerate(keys)], next_offset=len(keys)
        )


@asynccontextmanager
async def site(settings: GroupSettings) -> AsyncIterator[Site]:
    targets: list[Target] = []

    def make(_group: Group, _topic: Topic, _settings: DeliverySettings) -> Target:
        targets.append(Target())
        return targets[-1]

    listener = Dispatcher()
    listener.delivery = SelfDelivery(make, "us@1#1", 1 << 20)
    lane = make_lane(settings, listener=listener)
    listener.delivery.apply(lane)
    try:
        yield Site(lane, listener, listener.delivery, targets)
    finally:
        await listener.delivery.close()
        lane.close()


async def test_a_group_that_the_proxy_delivers_is_joined_without_clients() -> None:
    async with site(group(orders=8, refunds=None)) as it:
        assert it.listener.told["wanted"] == 1
        assert it.lane.presence.wanted(leave_after_s=0)
        assert len(it.targets) == 1


async def test_only_topics_with_such_an_action_are_taken() -> None:
    async with site(group(orders=8, refunds=None)) as it:
        it.feed("refunds", "a")
        it.feed("orders", "a", "b")
        await eventually(lambda: it.targets[0].offsets == [0, 1])
        assert it.lane.leases_of_group.used == 2


async def test_a_message_of_one_topic_costs_as_much_beside_few_topics_as_beside_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each topic looked through all of them for messages of its own, for each message of any."""
    lease = GroupLane.lease
    asked: list[Collection[Topic] | None] = []

    def counted(lane: GroupLane, wish: PullWish, *, now_ns: int) -> list[Batch]:
        asked.append(wish.topics)
        return lease(lane, wish, now_ns=now_ns)

    monkeypatch.setattr(GroupLane, "lease", counted)
    for topics in (2, 40):
        async with site(group(**{f"t{number}": 1 for number in range(topics)})) as it:
            it.feed("t1", "a", "b", "c")
            await eventually(lambda it=it: it.targets[1].offsets == [0])
            asked.clear()
            it.targets[1].answer(0)
            await eventually(lambda it=it: it.targets[1].offsets == [0, 1])
            assert asked == [{"t1"}], topics


async def test_a_changed_topic_takes_new_settings_and_finishes_attempts_with_the_old() -> None:
    async with site(group(orders=1)) as it:
        it.feed("orders", "a", "b", "c")
        await eventually(lambda: it.targets[0].offsets == [0])
        it.apply(group(orders=2))
        await eventually(lambda: it.targets[-1].offsets == [1, 2])
        assert not it.targets[0].closed
        it.targets[0].answer(0)
        await eventually(lambda: it.targets[0].closed)
        (view,) = it.delivery.view(it.lane.name)
        assert (view["to"], view["delivered"], view["under_way"]) == ("redis", 1, 2)


async def test_the_end_of_the_proxy_cuts_off_what_goes_on_with_old_settings_too() -> None:
    async with site(group(orders=1)) as it:
        it.feed("orders", "a")
        await eventually(lambda: it.targets[0].offsets == [0])
        it.apply(group(orders=2))
    assert [target.closed for target in it.targets] == [True, True]
    assert it.targets[0].cut == [0]


async def test_settings_that_say_the_same_change_nothing() -> None:
    async with site(group(orders=8)) as it:
        it.apply(group(orders=8))
        assert len(it.targets) == 1


async def test_an_action_taken_out_ends_its_deliveries_and_clients_may_pull() -> None:
    async with site(group(orders=8)) as it:
        it.apply(group(orders=None))
        await eventually(lambda: it.targets[0].closed)
        assert not it.lane.presence.wanted(leave_after_s=0)
        it.feed("orders", "a")
        assert it.lane.buffer.ready_topics() == ["orders"]
        assert it.targets[0].seen == []


async def test_a_topic_that_is_gone_leaves_no_figures() -> None:
    async with site(group(orders=8, refunds=8)) as it:
        it.apply(group(orders=8))
        assert set(it.delivery.figures()) == {(GROUP, "orders")}


async def test_a_group_that_is_gone_leaves_nothing() -> None:
    async with site(group(orders=8)) as it:
        assert set(it.delivery.figures()) == {(GROUP, "orders")}
        it.delivery.forget(it.lane)
        await eventually(lambda: it.targets[0].closed)
        assert it.delivery.figures() == {}
        assert it.delivery.view(it.lane.name) == []


def test_its_own_connections_are_open_and_no_clients() -> None:
    connections = OpenConnections({1, 2})
    assert [number in connections for number in (1, 3, 0, -1, -2, -77)] == [
        *(True, False, False, False, True, True)
    ]
