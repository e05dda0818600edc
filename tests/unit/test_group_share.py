from __future__ import annotations

from collections.abc import Collection

from broker_core.names import QueueName
from proxy.core.group_share import GroupShare
from proxy.core.handoffs import Handoffs
from tests.support.lanes import TOPIC
from tests.support.pipelines import queue

SECOND = 1_000_000_000
QUEUES = [queue(queue_id) for queue_id in range(8)]
ORDERS = QUEUES[0].topic


def a_share(member: str = "b") -> GroupShare:
    return GroupShare(member, Handoffs(expect_ns=60 * SECOND, wait_ns=10 * SECOND))


def look(
    share: GroupShare, *members: str, now_s: float = 1, owned: Collection[QueueName] = ()
) -> bool:
    share.begin_look([ORDERS])
    return share.look_at(
        ORDERS, queues=QUEUES, members=members, owned=owned, now_ns=int(now_s * SECOND)
    )


def test_what_is_missing_is_asked_of_its_broker_and_what_is_too_much_handed_over() -> None:
    assert TOPIC == ORDERS
    share = a_share()
    assert look(share, "a", "b")
    moves = share.moves(owned={QUEUES[0], QUEUES[4]}, refused={QUEUES[7]})
    assert moves.ask == {QUEUES[0].broker: {QUEUES[5], QUEUES[6]}}
    assert moves.hand_over == {QUEUES[0]}
    assert not share.settled(owned={QUEUES[4]})
    assert share.settled(owned=set(QUEUES[4:]))


def test_who_is_not_listed_keeps_what_it_has_and_is_not_settled() -> None:
    share = a_share()
    owned = {QUEUES[1]}
    assert not look(share, "a", "c", owned=owned)
    moves = share.moves(owned=owned)
    assert (moves.ask, moves.hand_over) == ({}, set())
    assert not share.settled(owned=owned)


def test_somebody_who_just_joined_is_something_to_come() -> None:
    share = a_share()
    look(share, "a", "b", now_s=1)
    look(share, "a", "b", "c", now_s=2)
    assert share.share == set(QUEUES[4:]), "c does not count yet"
    assert not share.settled(owned=set(QUEUES[4:]))
    share.leave()
    assert share.share == set()


def test_the_more_members_there_are_the_longer_each_rests_between_two_looks() -> None:
    share = a_share()
    look(share, "a", "b")
    assert share.next_look_s(settled=True) == (0.002, 5.0)
    assert share.next_look_s(settled=False) == (0.002, 0.5)
    look(share, "b", *(f"m{number}" for number in range(999)))
    assert share.next_look_s(settled=False) == (1.0, 1.0)
    assert share.next_look_s(settled=True) == (1.0, 5.0)


def test_a_large_share_is_taken_over_part_by_part() -> None:
    many = [queue(queue_id) for queue_id in range(1000)]
    share = a_share()
    share.begin_look([ORDERS])
    share.look_at(ORDERS, queues=many, members=["b"], owned=(), now_ns=SECOND)
    asked = share.moves(owned=set()).ask[many[0].broker]
    assert asked == set(many[:256])
    assert not share.settled(owned=asked)
    assert share.moves(owned=asked, taking=256).ask == {}
    assert share.moves(owned=asked, taking=250).ask == {many[0].broker: set(many[256:262])}


def test_queues_that_others_keep_hold_up_none_behind_them() -> None:
    many = [queue(queue_id) for queue_id in range(600)]
    share = a_share()
    share.begin_look([ORDERS])
    share.look_at(ORDERS, queues=many, members=["b"], owned=(), now_ns=SECOND)
    asked = [share.moves(owned=set()).ask[many[0].broker] for _ in range(3)]
    assert asked == [set(many[:256]), set(many[256:512]), {*many[512:], *many[:168]}]


def test_in_a_large_group_nothing_is_asked_for_at_first() -> None:
    share, members = a_share(), [f"a{number}" for number in range(99)]
    many = [queue(queue_id) for queue_id in range(400)]
    for now_s, count in ((1, 0), (2, 0), (3, 4)):
        share.begin_look([ORDERS])
        assert share.look_at(
            ORDERS, queues=many, members=[*members, "b"], owned=(), now_ns=now_s * SECOND
        )
        asked = share.moves(owned=set()).ask
        assert sum(map(len, asked.values())) == count
        assert share.settled(owned=set()) is False
