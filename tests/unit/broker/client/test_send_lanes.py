"""Turns of sends, one at a time per key."""

from __future__ import annotations

from broker_core.client.send_lanes import SendLanes


def test_a_key_s_turns_come_in_order_and_other_keys_go_meanwhile() -> None:
    lanes = SendLanes()
    first, second, other = lanes.enter("a"), lanes.enter("a"), lanes.enter("b")
    assert [turn.may_go for turn in (first, second, other)] == [True, False, True]
    assert lanes.leave(other) == []
    assert lanes.leave(first) == [second]
    assert second.may_go


def test_a_turn_of_several_keys_waits_for_all_of_them() -> None:
    lanes = SendLanes()
    a, b, both, behind = lanes.enter("a"), lanes.enter("b"), lanes.enter("ab"), lanes.enter("b")
    assert lanes.leave(a) == []
    assert lanes.leave(b) == [both]
    assert lanes.leave(both) == [behind]


def test_those_behind_a_failed_send_go_without_its_key() -> None:
    lanes = SendLanes()
    failing, both, behind = lanes.enter("a"), lanes.enter("ab"), lanes.enter("a")
    assert lanes.leave(failing, failed="a") == [both, behind]
    assert (both.overtaken, behind.overtaken) == ({"a"}, {"a"})
    later = lanes.enter("a")
    assert later.may_go
    assert not lanes.enter("b").may_go


def test_one_that_gives_up_waiting_takes_those_behind_it_along() -> None:
    lanes = SendLanes()
    going, waiting, behind = lanes.enter("a"), lanes.enter("a"), lanes.enter("a")
    assert lanes.leave(waiting, failed="a") == [behind]
    assert not behind.keys - behind.overtaken
    assert lanes.leave(going) == []


def test_lanes_without_turns_are_gone() -> None:
    lanes = SendLanes()
    turns = [lanes.enter("a"), lanes.enter("ab"), lanes.enter("b"), lanes.enter("")]
    assert len(lanes) == 2
    for turn in reversed(turns):
        lanes.leave(turn, failed="b")
    assert len(lanes) == 0
