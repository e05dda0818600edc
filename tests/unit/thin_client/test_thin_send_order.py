"""Order of a thin producer's calls after a failed call."""

from __future__ import annotations

from thin_client.send_order import SendOrder

K, OTHER = ("orders", 1), ("orders", 2)


def test_calls_made_before_a_failure_of_their_key_are_held_back() -> None:
    order = SendOrder()
    _failing, behind, other = order.enter(), order.enter(), order.enter()
    order.leave(failed=[K])
    later = order.enter()
    assert order.held_back(behind, [OTHER, K])
    assert not order.held_back(other, [OTHER])
    assert not order.held_back(later, [K])


def test_a_second_failure_holds_back_what_was_made_since_the_first() -> None:
    order = SendOrder()
    order.enter()
    order.enter()
    order.leave(failed=[K])
    third = order.enter()
    assert not order.held_back(third, [K])
    order.leave(failed=[K])
    assert order.held_back(third, [K])


def test_failures_are_forgotten_when_no_call_waits() -> None:
    order = SendOrder()
    order.enter()
    order.enter()
    order.leave(failed=[K])
    assert order.held_back(2, [K])
    order.leave()
    assert not order.held_back(2, [K])
