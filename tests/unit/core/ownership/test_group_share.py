from __future__ import annotations

from collections.abc import Collection

from broker_core.names import QueueName
from proxy.core.ownership.group_share import GroupShare, Present
from proxy.core.ownership.named_owners import Handoffs
from testkit.lanes import TOPIC
from testkit.pipelines import queue

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
        ORDERS, Present(members), queues=QUEUES, owned=owned, now_ns=int(now_s * SECOND)
    )


def test_missing_queues_are_requested_from_their_broker_and_excess_ones_handed_over() -> None:
    assert TOPIC == ORDERS
    share = a_share()
    assert look(share, "a", "b")
    moves = share.moves(owned={QUEUES[0], QUEUES[4]}, refused={QUEUES[7]})
    assert moves.ask == {QUEUES[0].broker: {QUEUES[5], QUEUES[6]}}
    assert moves.hand_over == {QUEUES[0]}
    assert not share.settled(owned={QUEUES[4]})
    assert share.settled(owned=set(QUEUES[4:]))


def test_an_unlisted_member_keeps_its_queues_and_is_not_settled() -> None:
    share = a_share()
    owned = {QUEUES[1]}
    assert not look(share, "a", "c", owned=owned)
    moves = share.moves(owned=owned)
    assert (moves.ask, moves.hand_over) == ({}, set())
    assert not share.settled(owned=owned)


def test_a_new_member_keeps_the_group_unsettled() -> None:
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
    share.look_at(ORDERS, Present(["b"]), queues=many, owned=(), now_ns=SECOND)
    asked = share.moves(owned=set()).ask[many[0].broker]
    assert asked == set(many[:256])
    assert not share.settled(owned=asked)
    assert share.moves(owned=asked, taking=256).ask == {}
    assert share.moves(owned=asked, taking=250).ask == {many[0].broker: set(many[256:262])}


def test_queues_that_others_keep_hold_up_none_behind_them() -> None:
    many = [queue(queue_id) for queue_id in range(600)]
    share = a_share()
    share.begin_look([ORDERS])
    share.look_at(ORDERS, Present(["b"]), queues=many, owned=(), now_ns=SECOND)
    asked = [share.moves(owned=set()).ask[many[0].broker] for _ in range(3)]
    assert asked == [set(many[:256]), set(many[256:512]), {*many[512:], *many[:168]}]


def test_in_a_large_group_nothing_is_asked_for_at_first() -> None:
    share, members = a_share(), [f"a{number}" for number in range(99)]
    many = [queue(queue_id) for queue_id in range(400)]
    for now_s, count in ((1, 0), (2, 0), (3, 4)):
        share.begin_look([ORDERS])
        assert share.look_at(
            ORDERS, Present([*members, "b"]), queues=many, owned=(), now_ns=now_s * SECOND
        )
        asked = share.moves(owned=set()).ask
        assert sum(map(len, asked.values())) == count
        assert share.settled(owned=set()) is False


# ---- demand for a topic -------------------------------------------------------------------------


class Looks:
    """*member*'s checks of one topic, once per second, while all requested locks are granted."""

    def __init__(self, member: str = "b", owned: Collection[QueueName] = ()) -> None:
        self.share = a_share(member)
        self.owned = set(owned)
        self.held_by_others: set[QueueName] = set()
        self.now_s = 0.0

    def look(
        self, present: Present, *, times: int = 1, leased: Collection[QueueName] = ()
    ) -> set[QueueName]:
        for _ in range(times):
            self.now_s += 1
            self.share.begin_look([ORDERS])
            assert self.share.look_at(
                ORDERS,
                present,
                queues=QUEUES,
                owned=self.owned,
                leased=leased,
                now_ns=int(self.now_s * SECOND),
            )
            moves = self.share.moves(owned=self.owned)
            self.owned -= moves.hand_over
            for queues in moves.ask.values():
                self.owned |= queues - self.held_by_others
        return self.owned

    @property
    def settled(self) -> bool:
        return self.share.settled(owned=self.owned)


def test_only_members_that_want_a_topic_share_its_queues() -> None:
    everybody = ["a", "b", "c", "d"]
    assert Looks("b").look(Present(everybody, ["b", "d"])) == set(QUEUES[:4])
    assert Looks("d").look(Present(everybody, ["b", "d"])) == set(QUEUES[4:])
    for other in "ac":
        looks = Looks(other, owned=QUEUES)
        assert looks.look(Present(everybody, ["b", "d"]), times=2) == set()
        assert looks.settled


def test_more_members_than_queues_want_a_topic() -> None:
    many = [f"m{number:02}" for number in range(12)]
    shares = [Looks(each).look(Present(["x", *many], many)) for each in many]
    assert [len(share) for share in shares] == [1] * 8 + [0] * 4
    assert set().union(*shares) == set(QUEUES)


def test_unwanted_topics_stay_and_their_unowned_queues_are_shared() -> None:
    looks = Looks("b", owned=QUEUES[:1])
    looks.held_by_others = set(QUEUES[4:6])
    assert looks.look(Present(["a", "b"], [])) == {QUEUES[0], *QUEUES[6:]}
    looks.look(Present(["a", "b"], []))
    assert looks.settled, "queues kept by others are not pending"
    looks.held_by_others.clear()
    assert looks.look(Present(["a", "b"], [])) == {QUEUES[0], *QUEUES[4:]}


def test_the_first_that_wants_a_topic_gets_all_of_it_once_it_has_stayed() -> None:
    looks = Looks("b", owned=QUEUES)
    looks.look(Present(["a", "b"], []))
    assert looks.look(Present(["a", "b"], ["a"])) == set(QUEUES), "it has just come"
    assert not looks.settled
    assert looks.look(Present(["a", "b"], ["a"])) == set()


def test_demand_that_comes_and_goes_moves_no_queue() -> None:
    looks = Looks("b", owned=QUEUES)
    for turn in range(20):
        assert looks.look(Present(["a", "b"], ["a"] if turn % 2 else [])) == set(QUEUES)
        looks.now_s -= 0.5
    taken = Looks("b")
    taken.look(Present(["a", "b"], ["b"]))
    for turn in range(20):
        assert taken.look(Present(["a", "b"], ["a", "b"] if turn % 2 else ["b"])) == set(QUEUES)
        taken.now_s -= 0.5


def test_a_queue_in_the_hands_of_clients_is_kept_until_they_have_settled() -> None:
    looks = Looks("b", owned=QUEUES)
    looks.look(Present(["a", "b"], ["a", "b"]))
    held = {QUEUES[5]}
    assert looks.look(Present(["a", "b"], ["a"]), times=9, leased=held) == held
    assert not looks.settled
    assert looks.look(Present(["a", "b"], ["a"])) == set()
    assert looks.settled


def test_strangers_keep_the_share_that_they_compute_themselves() -> None:
    members = ["a", "b", "native", "z"]
    theirs = set(QUEUES[4:6])
    for wanting in (["b"], []):
        looks = Looks("b", owned=QUEUES[4:5])
        owned = looks.look(Present(members, wanting, {"native": True}), times=2)
        assert not owned & theirs
        assert owned == (set(QUEUES) - theirs if wanting else set(QUEUES[2:4]))


def test_of_a_topic_that_it_does_not_subscribe_a_stranger_gets_nothing() -> None:
    members = ["a", "b", "native", "z"]
    assert Looks("b").look(Present(members, ["b"], {"native": False})) == set(QUEUES)
    assert Looks("b").look(Present(members, [], {"native": False})) == set(QUEUES[3:6])
    everywhere = Present(members, ["b"], {"native": False}).takers
    assert everywhere == {"b"}


def test_of_a_topic_that_it_does_not_want_a_member_keeps_nothing_that_it_was_given() -> None:
    looks = Looks("b")
    looks.share.handoffs.expect(QUEUES[0], now_ns=0)
    assert looks.look(Present(["a", "b"], ["a", "b"])) == {QUEUES[0], *QUEUES[4:]}
    assert looks.look(Present(["a", "b"], ["a"])) == set()
    assert not looks.share.handoffs.expects(QUEUES[0])
