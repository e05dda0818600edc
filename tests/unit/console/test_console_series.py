"""The series of the last hour: a ring of samples."""

from __future__ import annotations

from proxy.console.series import Series


def test_samples_are_returned_oldest_first_with_rates_per_second() -> None:
    series = Series(samples=4)
    for step, total in enumerate((100, 150, 150)):
        series.add(1_000 + step * 10_000, {"g": {"lag": step, "acked": total}})
    found = series.of("g")
    assert found is not None
    assert found["at_ms"] == [1_000, 11_000, 21_000]
    assert found["lag"] == [0, 1, 2]
    assert found["acked"] == [None, 5.0, 0.0]  # the first has no predecessor


def test_rates_are_those_of_the_time_that_has_passed_when_the_wall_clock_is_set() -> None:
    series, hour = Series(samples=4), 3_600_000
    for step, at_ms in enumerate((2 * hour, hour, 3 * hour)):
        series.add(at_ms, {"g": {"acked": 50 * step}}, at_ns=step * 10_000_000_000)
    found = series.of("g")
    assert found is not None
    assert found["acked"] == [None, 5.0, 5.0]


def test_the_ring_keeps_only_the_newest_samples() -> None:
    series = Series(samples=3)
    for step in range(8):
        series.add(step, {"g": {"lag": step}})
    found = series.of("g")
    assert found is not None
    assert (found["at_ms"], found["lag"]) == ([5, 6, 7], [5, 6, 7])
    assert series.count == 3


def test_a_restarted_counter_gives_no_negative_rate() -> None:
    series = Series(samples=3)
    series.add(0, {"g": {"acked": 90}})
    series.add(1_000, {"g": {"acked": 3}})
    found = series.of("g")
    assert found is not None
    assert found["acked"] == [None, 0.0]


def test_a_deleted_group_leaves_gaps_and_is_dropped_with_its_last_sample() -> None:
    series = Series(samples=3)
    series.add(0, {"g": {"lag": 5}, "other": {}})
    series.add(1, {"other": {}})
    found = series.of("g")
    assert found is not None
    assert found["lag"] == [5, None]
    series.add(2, {"other": {}})
    assert series.of("g") is not None
    series.add(3, {"other": {}})
    assert series.of("g") is None
    assert len(series) == 1


def test_a_group_that_returns_has_no_rate_over_its_absence() -> None:
    series = Series(samples=4)
    series.add(0, {"g": {"acked": 5}})
    series.add(1_000, {})
    series.add(2_000, {"g": {"acked": 500}})
    found = series.of("g")
    assert found is not None
    assert found["acked"] == [None, None, None]


def test_groups_over_the_limit_are_omitted_until_there_is_room() -> None:
    series = Series(samples=2, most_groups=2)
    series.add(0, {name: {} for name in "abc"})
    assert (len(series), series.of("c")) == (2, None)
    series.add(1, {"c": {}})
    series.add(2, {"c": {"lag": 7}})
    series.add(3, {"c": {"lag": 8}})
    found = series.of("c")
    assert found is not None
    assert found["lag"][-1] == 8
