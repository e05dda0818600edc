"""Broker properties for delays, for brokers with arbitrary times and with levels only."""

from __future__ import annotations

import pytest

from broker_core.broker.delay_rules import DEFAULT_LEVELS, parse_levels
from proxy.downstream.delay_times import LEVELS_S, delay_properties

NOW_MS = 1_790_000_000_500


@pytest.mark.parametrize("takes_times", [True, False])
@pytest.mark.parametrize("due_ms", [0, NOW_MS - 1, NOW_MS])
def test_a_past_time_means_no_delay(due_ms: int, takes_times: bool) -> None:
    assert delay_properties(due_ms, now_ms=NOW_MS, takes_times=takes_times) == {}


def test_an_exact_time_is_used_if_brokers_support_it() -> None:
    told = delay_properties(NOW_MS + 1, now_ms=NOW_MS, takes_times=True)
    assert told == {"TIMER_DELIVER_MS": str(NOW_MS + 1)}


@pytest.mark.parametrize(
    ("delay_ms", "level"),
    [(1, "1"), (1000, "1"), (4001, "2"), (5000, "2"), (30_000, "4"), (7_200_000, "18")],
)
def test_a_level_is_used_if_it_meets_the_time_within_a_second(delay_ms: int, level: str) -> None:
    told = delay_properties(NOW_MS + delay_ms, now_ms=NOW_MS, takes_times=False)
    assert told == {"DELAY": level}


@pytest.mark.parametrize("delay_ms", [1001, 4000, 5001, 86_400_000])
def test_any_other_time_is_refused_where_brokers_know_levels_alone(delay_ms: int) -> None:
    with pytest.raises(ValueError, match=f"{delay_ms / 1000:g} s: .* only the levels \\(1, 5, 10"):
        delay_properties(NOW_MS + delay_ms, now_ms=NOW_MS, takes_times=False)


def test_the_levels_are_the_brokers_own() -> None:
    assert tuple(seconds * 1000 for seconds in LEVELS_S) == parse_levels(DEFAULT_LEVELS)


@pytest.mark.parametrize("text", ["", "1", "1s 0m", "1s 2x", "s", "1s " * 19])
def test_impossible_log_levels_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="delay level"):
        parse_levels(text)
