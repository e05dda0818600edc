from __future__ import annotations

from proxy.core.keys.retry_policy import MS, OnExhausted, RetryPolicy


def test_the_nth_failure_waits_the_nth_interval_and_the_last_repeats() -> None:
    policy = RetryPolicy((10, 20, 40))
    assert [policy.delay_ns(attempt) // MS for attempt in (1, 2, 3, 4, 99)] == [10, 20, 40, 40, 40]


def test_a_hand_out_that_was_never_counted_waits_the_first_interval() -> None:
    assert RetryPolicy((10, 20)).delay_ns(0) == 10 * MS


def test_a_job_is_given_up_after_its_last_hand_out_not_before() -> None:
    policy = RetryPolicy(max_deliveries=3)
    assert [policy.gives_up(attempt) for attempt in (1, 2, 3, 4)] == [False, False, True, True]


def test_block_never_gives_up() -> None:
    assert not RetryPolicy(max_deliveries=1, on_exhausted=OnExhausted.BLOCK).gives_up(1000)
