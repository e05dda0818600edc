"""Parts of a table: their days, and conditions that depend on them alone."""

from __future__ import annotations

from datetime import date

import pytest

from thin_client.spark.lake.parts import (
    Part,
    day_of_number,
    days_of,
    depends_on_columns,
    follows,
    span_us,
)

DAY = date(2026, 1, 31)


def test_the_days_of_parts_are_those_of_each_and_empty_without_one() -> None:
    parts = [Part({"date": day, "topic": "t"}, ("f",)) for day in (DAY, None, DAY)]
    assert days_of(parts) == ["", "2026-01-31"]


def test_days_are_unknown_if_one_part_does_not_tell_its_own() -> None:
    assert days_of([Part({"date": DAY}, ("f",)), Part({}, ("g",))]) is None
    assert days_of([]) is None


@pytest.mark.parametrize(
    ("day", "other", "expected"),
    [
        ("2026-01-31", "2026-02-01", True),
        ("2026-01-31", "2026-02-02", False),
        ("2026-02-01", "2026-01-31", False),
        ("", "2026-02-01", False),
        ("2026-01-31", "monday", False),
        ("9999-12-31", "9999-12-31", False),
    ],
)
def test_a_day_follows_the_one_before(day: str, other: str, expected: bool) -> None:
    assert follows(day, other) is expected


def test_a_day_has_24_hours_in_utc() -> None:
    begin, end = span_us("1970-01-02")
    assert (begin, end) == (86_400_000_000, 2 * 86_400_000_000)
    assert day_of_number(1) == date(1970, 1, 2)


@pytest.mark.parametrize(
    ("condition", "depends"),
    [
        ("date >= '2026-01-01'", True),
        ("date IN ('2026-01-31', '2026-02-01') AND (topic = 'a' OR NOT (topic LIKE ('b%')))", True),
        ("date = CAST('2026-01-31' AS DATE)", True),
        ("date > '2026-01-01' AND rand() < 0.1", False),
        ("date > '2026-01-01' AND db.chance (1) = 1", False),
        ("date IN (SELECT max(day) FROM days)", False),
    ],
)
def test_a_condition_with_a_function_may_differ_from_row_to_row(
    condition: str, depends: bool
) -> None:
    """``rand`` would choose some of the parts, and then some of their rows."""
    assert depends_on_columns(condition) == depends
