from __future__ import annotations

from broker_core.names import Topic
from proxy.core.jobs.starvation import PATIENCE_NS, Patience, Starvation

SECOND = 1_000_000_000
ORDERS, PAYMENTS = Topic("orders"), Topic("payments")


def test_a_recent_request_counts_and_is_reported_once() -> None:
    starvation = Starvation()
    assert not starvation.asked_recently(ORDERS, 5)
    assert starvation.asks([ORDERS], 5)
    assert not starvation.asks([ORDERS], 6)
    assert starvation.asked_recently(ORDERS, 5 + 5 * SECOND)
    assert not starvation.asked_recently(ORDERS, 6 + 5 * SECOND)
    assert starvation.asks([ORDERS], 6 + 5 * SECOND)


def test_demand_for_one_topic_does_not_affect_another() -> None:
    starvation = Starvation()
    starvation.asks([ORDERS], SECOND)
    assert not starvation.asked_recently(PAYMENTS, SECOND)
    assert starvation.asks([ORDERS, PAYMENTS], SECOND), "news for one of them"
    assert starvation.asked_recently(PAYMENTS, SECOND)
    starvation.forget(PAYMENTS)
    assert not starvation.asked_recently(PAYMENTS, SECOND)
    starvation.asks(None, SECOND)
    assert starvation.asked_recently(PAYMENTS, SECOND), "any topic will do"


def test_waiting_clients_count_for_their_topics_until_they_stop() -> None:
    starvation = Starvation()
    starvation.waits([ORDERS], 1)
    starvation.waits([ORDERS, PAYMENTS], 1)
    starvation.waits([ORDERS, PAYMENTS], -1)
    assert (starvation.waiting(ORDERS), starvation.waiting(PAYMENTS)) == (True, False)
    starvation.waits(None, 1)
    assert starvation.waiting(PAYMENTS)
    starvation.waits(None, -1)
    starvation.waits([ORDERS], -1)
    assert not starvation.waiting(ORDERS)


def test_an_oldest_message_that_does_not_move_for_five_seconds_is_noticed() -> None:
    patience = Patience()
    assert not patience.stands(7, 0)
    assert not patience.stands(7, 5 * SECOND - 1)
    assert patience.stands(7, 5 * SECOND)
    assert not patience.stands(8, 5 * SECOND)


def test_a_full_window_is_read_past_once_its_oldest_message_does_not_move() -> None:
    patience = Patience()
    assert not patience.over(in_vain=True, oldest=7, position=900, now_ns=SECOND)
    assert not patience.over(in_vain=True, oldest=7, position=900, now_ns=SECOND + PATIENCE_NS - 1)
    assert patience.over(in_vain=True, oldest=7, position=900, now_ns=SECOND + PATIENCE_NS)
    assert patience.over(in_vain=True, oldest=7, position=950, now_ns=SECOND + PATIENCE_NS + 1)


def test_a_window_that_finishes_within_five_seconds_is_not_read_past() -> None:
    patience = Patience()
    for step in range(20):
        now_ns, oldest = step * PATIENCE_NS, step * 40  # 200 a second
        position = oldest + 999
        assert not patience.over(in_vain=True, oldest=oldest, position=position, now_ns=now_ns)
    slower = patience.over(in_vain=True, oldest=800, position=1800, now_ns=20 * PATIENCE_NS)
    assert slower, "5 s"
    resumed = Patience()
    for now_ns in (0, PATIENCE_NS):
        nothing_read = resumed.over(in_vain=True, oldest=7, position=7, now_ns=now_ns)
    assert nothing_read, "all that is held was read by an owner before"


def test_patience_restarts_after_a_wait_ends() -> None:
    patience = Patience()
    for now_ns in (0, PATIENCE_NS):
        over = patience.over(in_vain=True, oldest=7, position=900, now_ns=now_ns)
    assert over
    assert not patience.over(in_vain=False, oldest=7, position=900, now_ns=PATIENCE_NS + 1)
    assert not patience.over(in_vain=True, oldest=7, position=900, now_ns=PATIENCE_NS + 2)
    assert not patience.over(in_vain=True, oldest=7, position=900, now_ns=2 * PATIENCE_NS)
