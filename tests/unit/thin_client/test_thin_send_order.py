"""Order of a thin producer's calls after a failed call."""

from __future__ import annotations

from thin_client.send_order import SendOrder

K, OTHER = ("orders", 1), ("orders", 2)


def test_calls_made_before_a_failure_of_their_key_are_held_back() -> None:
    order = SendOrder()
    failing, behind, other = order.enter(), order.enter(), order.enter()
    order.leave(failing, failed=[K])
    later = order.enter()
    assert order.held_back(behind, [OTHER, K])
    assert not order.held_back(other, [OTHER])
    assert not order.held_back(later, [K])


def test_a_second_failure_holds_back_what_was_made_since_the_first() -> None:
    order = SendOrder()
    first, second = order.enter(), order.enter()
    order.leave(first, failed=[K])
    third = order.enter()
    assert not order.held_back(third, [K])
    order.leave(second, failed=[K])
    assert order.held_back(third, [K])


def test_a_call_that_ends_while_it_waits_holds_back_none_ahead_of_it() -> None:
    order = SendOrder()
    ahead, ended, behind = order.enter(), order.enter(), order.enter()
    order.leave(ended, failed=[K])
    since, also_ended, last = order.enter(), order.enter(), order.enter()
    order.leave(also_ended, failed=[K])
    held_back = [order.held_back(each, [K]) for each in (ahead, behind, since, last)]
    assert held_back == [False, True, False, True]
    order.leave(ahead, failed=[K])
    assert order.held_back(since, [K])


def test_failures_are_forgotten_when_no_call_waits_for_them() -> None:
    order = SendOrder()
    first, second = order.enter(), order.enter()
    order.leave(first, failed=[K])
    assert order.held_back(second, [K])
    order.leave(second)
    assert not order.held_back(second, [K])
