"""Pruning of queues and offsets by a query's filters."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from thin_client.spark.filters import Pruning, pruning

A0, A1, B0 = ("a", "broker-a_0"), ("a", "broker-a_1"), ("b", "broker-a_0")
OFFSETS = {"a": {"broker-a_0": 10, "broker-a_1": 20}, "b": {"broker-a_0": 30}}


@dataclass
class Filter:
    """A filter like Spark's: a path of names, and usually a value."""

    attribute: tuple[str, ...]
    value: Any = None


def made(kind: str, column: str, value: Any = None) -> Filter:
    made: Filter = type(kind, (Filter,), {})((column,), value)
    return made


@dataclass
class Not:
    """The negation of a filter, as Spark's."""

    child: Any


def negated(kind: str, column: str, value: Any = None) -> Any:
    return Not(made(kind, column, value))


def queues(*filters: Any) -> set[tuple[str, str]]:
    found, left = pruning(filters)
    assert left == []
    return {queue for queue in (A0, A1, B0) if found.takes(queue)}


@pytest.mark.parametrize(
    ("kind", "column", "value", "wanted"),
    [
        ("EqualTo", "topic", "a", {A0, A1}),
        ("EqualNullSafe", "qid", "broker-a_0", {A0, B0}),
        ("In", "topic", ("b", "c"), {B0}),
        ("StringStartsWith", "qid", "broker-a", {A0, A1, B0}),
        ("StringEndsWith", "qid", "_1", {A1}),
        ("StringContains", "topic", "b", {B0}),
        ("IsNotNull", "topic", None, {A0, A1, B0}),
        ("EqualTo", "topic", "nothing", set()),
    ],
)
def test_filters_on_names_choose_queues(
    kind: str, column: str, value: Any, wanted: set[tuple[str, str]]
) -> None:
    assert queues(made(kind, column, value)) == wanted


def test_all_filters_have_to_pass() -> None:
    assert queues(made("EqualTo", "topic", "a"), made("EqualTo", "qid", "broker-a_1")) == {A1}


@pytest.mark.parametrize(
    ("kind", "least", "below"),
    [
        ("EqualTo", 7, 8),
        ("GreaterThanOrEqual", 7, None),
        ("GreaterThan", 8, None),
        ("LessThan", None, 7),
        ("LessThanOrEqual", None, 8),
    ],
)
def test_filters_on_offsets_are_kept_to_the_letter(
    kind: str, least: int | None, below: int | None
) -> None:
    assert pruning([made(kind, "offset", 7)]) == (Pruning(least=least, below=below), [])


def test_without_a_name_the_other_queues_are_read() -> None:
    assert queues(negated("EqualTo", "topic", "a")) == {B0}
    assert queues(negated("In", "qid", ("broker-a_1", "x"))) == {A0, B0}
    assert queues(negated("IsNotNull", "qid")) == set()


def test_a_null_in_a_list_is_no_name_and_its_negation_is_true_for_no_row() -> None:
    assert queues(made("In", "topic", ("a", None))) == {A0, A1}
    assert queues(negated("In", "topic", ("a", None))) == set()


def test_lists_of_offsets_and_times_prune_and_stay_with_spark() -> None:
    offsets = made("In", "offset", (9, 3, None, 7))
    assert pruning([offsets]) == (Pruning(least=3, below=10), [offsets])
    times = made("In", "timestamp", (NOON + timedelta(seconds=1), NOON))
    assert pruning([times]) == (Pruning(since_ms=NOON_MS, until_ms=NOON_MS + 1001), [times])


def test_times_are_looked_up_with_a_margin() -> None:
    """Times that step back by less than the margin cost no row."""
    assert Pruning().lookups_ms == (None, None)
    times = [0, 1, 2, 500_000, 4, 5, 6]  # a clock stepped back
    for wanted, time in enumerate(times):
        since, until = Pruning(since_ms=time, until_ms=time + 1).lookups_ms
        assert since is not None
        assert until is not None
        ends = {"a": {"broker-a_0": len(times)}}
        starts = {"a": {"broker-a_0": 0}}
        found = Pruning()
        first = found.starts(starts, {A0: bisect_left(times, since)})["a"]["broker-a_0"]
        last = found.ends(ends, {A0: bisect_left(times, until)})["a"]["broker-a_0"]
        assert first <= wanted < last


def test_of_several_bounds_the_tightest_counts() -> None:
    kinds = ("GreaterThan", 3), ("GreaterThanOrEqual", 3), ("LessThan", 9), ("LessThanOrEqual", 9)
    found, _ = pruning(made(kind, "offset", value) for kind, value in kinds)
    assert found == Pruning(least=4, below=9)


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000


@pytest.mark.parametrize(
    ("kind", "at", "since_ms", "until_ms"),
    [
        ("GreaterThanOrEqual", NOON, NOON_MS, None),
        ("GreaterThan", NOON, NOON_MS + 1, None),
        ("LessThan", NOON, None, NOON_MS),
        ("LessThanOrEqual", NOON, None, NOON_MS + 1),
        ("EqualTo", NOON, NOON_MS, NOON_MS + 1),
        # Between two milliseconds: no message has such a time.
        ("GreaterThanOrEqual", NOON + timedelta(microseconds=1), NOON_MS + 1, None),
        ("GreaterThan", NOON + timedelta(microseconds=1), NOON_MS + 1, None),
        ("LessThan", NOON + timedelta(microseconds=1), None, NOON_MS + 1),
        ("LessThanOrEqual", NOON + timedelta(microseconds=1), None, NOON_MS + 1),
        ("GreaterThanOrEqual", NOON.astimezone(timezone(timedelta(hours=5))), NOON_MS, None),
        ("GreaterThanOrEqual", NOON.replace(tzinfo=None), NOON_MS, None),
    ],
)
def test_filters_on_times_prune_and_stay_with_spark(
    kind: str, at: datetime, since_ms: int | None, until_ms: int | None
) -> None:
    given = made(kind, "timestamp", at)
    assert pruning([given]) == (Pruning(since_ms=since_ms, until_ms=until_ms), [given])


@pytest.mark.parametrize(
    "given",
    [
        made("EqualTo", "key", "k"),
        made("EqualTo", "bornTimestamp", NOON),
        negated("EqualTo", "offset", 1),
        negated("GreaterThan", "topic", "a"),
        made("In", "offset", ("1", 2)),
        made("In", "offset", ()),
        made("In", "key", ("a",)),
        made("IsNull", "offset"),
        made("GreaterThan", "topic", "a"),
        made("EqualTo", "topic"),
        Filter(("topic", "deeper"), "a"),
        object(),
    ],
)
def test_what_says_nothing_here_is_left_to_spark(given: Any) -> None:
    assert pruning([given]) == (Pruning(), [given])


def test_bounds_cut_each_queue() -> None:
    found, _ = pruning(
        [
            made("EqualTo", "topic", "a"),
            made("GreaterThanOrEqual", "offset", 15),
            made("LessThan", "offset", 18),
        ]
    )
    assert found.starts(OFFSETS, {}) == {"a": {"broker-a_0": 15, "broker-a_1": 20}}
    assert found.ends(OFFSETS, {}) == {"a": {"broker-a_0": 10, "broker-a_1": 18}}


def test_times_cut_where_the_broker_finds_them() -> None:
    found = Pruning(least=12, below=25)
    assert found.starts(OFFSETS, {A0: 13, A1: 2})["a"] == {"broker-a_0": 13, "broker-a_1": 20}
    # A broker of 4.9 may have found the message before.
    assert found.ends(OFFSETS, {A1: 3})["a"] == {"broker-a_0": 10, "broker-a_1": 4}
    assert found.ends(OFFSETS, {})["b"] == {"broker-a_0": 25}
