"""The lag of topics that no client of a proxy wants is known by group and topic."""

from __future__ import annotations

from broker_core.errors import ConnectionLost
from broker_core.names import Topic
from proxy.lane.group_lane import GroupLane
from proxy.upstream.lag_without_clients import LagWithoutClients
from testkit.lanes import GROUP, group_settings, make_lane
from testkit.messages import message
from tests.support.fake_broker_client import FakeBrokerClient, queue

ORDERS, REFUNDS = Topic("orders"), Topic("refunds")


def looking(broker: FakeBrokerClient, *lanes: GroupLane) -> LagWithoutClients:
    return LagWithoutClients(broker, lanes)  # type: ignore[arg-type]


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
    assert lag.figures() == {}  # not asked yet
    await lag.look()
    assert lag.figures() == {(GROUP, ORDERS): 3 + 4}


async def test_messages_that_retention_deleted_do_not_wait() -> None:
    broker, lane = broker_with(10), make_lane()
    broker.lowest[queue(0)] = 6
    lag = looking(broker, lane)
    await lag.look()
    assert lag.figures() == {(GROUP, ORDERS): 4}


async def test_a_group_that_begins_at_the_end_waits_for_nothing_yet() -> None:
    broker, lane = broker_with(10), make_lane(group_settings(start_from="latest"))
    lag = looking(broker, lane)
    await lag.look()
    assert lag.figures() == {(GROUP, ORDERS): 0}
    broker.committed[lane.name, queue(0)] = 9
    await lag.look()
    assert lag.figures() == {(GROUP, ORDERS): 1}


async def test_a_topic_with_clients_is_left_out_at_once() -> None:
    broker, lane = broker_with(3), make_lane(group_settings(topics=("orders", "refunds")))
    lag = looking(broker, lane)
    await lag.look()
    assert lag.figures() == {(GROUP, ORDERS): 3, (GROUP, REFUNDS): 0}
    lane.presence.show([ORDERS], shows_all=False)
    assert lag.figures() == {(GROUP, REFUNDS): 0}
    lane.presence.show([ORDERS, REFUNDS], shows_all=True)
    await lag.look()
    lane.presence.leave()
    assert lag.figures() == {}


async def test_broadcast_groups_have_no_offsets_of_their_own() -> None:
    lag = looking(broker_with(3), make_lane(group_settings(mode="broadcast")))
    await lag.look()
    assert lag.figures() == {}


async def test_a_topic_whose_broker_does_not_answer_is_absent_and_others_are_not() -> None:
    broker, lane = broker_with(3), make_lane(group_settings(topics=("orders", "refunds")))
    lag = looking(broker, lane)
    await lag.look()
    broker.fails["max_offset", queue(0)] = ConnectionLost("gone")
    await lag.look()
    assert lag.figures() == {(GROUP, REFUNDS): 0}
