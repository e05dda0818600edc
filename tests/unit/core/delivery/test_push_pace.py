"""The pace of requests to a receiver; times are given."""

from __future__ import annotations

import pytest

from proxy.core.delivery.push_pace import SECOND, PushPace


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-9])
def test_the_lowest_rate_lets_one_pass_and_waits_a_day_at_a_time(rate: float) -> None:
    pace = PushPace(rate)
    assert [pace.take(1, 0) for _ in range(2)] == [1, 0]
    assert pace.wait_ns(0) == 86_400 * SECOND + 1
