"""Filter pushdown: the queues and offsets that a query's filters leave to read. Pure.

Spark's filters are identified by their class names, so that this module does not import Spark.
Filters on topic, qid and offset are applied exactly, except lists of offsets; Spark does not apply
them again. Filters on times prune by the broker's lookup (the first message stored at or after a
time), with a margin, because a clock may step back; Spark applies them again.

Spark passes each condition that is joined by AND, as far as it is a comparison of one column with
constants. It passes no OR of different comparisons: Spark 4.3 has no form for it
(``UserDefinedPythonDataSourceFilterPushdownRunner``). An OR that compares one column with ``=`` is
passed if it is written as IN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from thin_client.spark.offsets import Offsets, Queue, flat, sorted_offsets

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
#: Stored times may step back by this much, as a broker's clock did, without a lost row.
CLOCK_STEP_MS = 600_000
Test = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Pruning:
    """Bounds of a query: queues that pass all *tests*, offsets in [*least*, *below*), and times in
    [*since_ms*, *until_ms*), milliseconds since 1970. None: no bound.
    """

    tests: tuple[tuple[str, Test], ...] = ()
    least: int | None = None
    below: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def lookups_ms(self) -> tuple[int | None, int | None]:
        """The times to look up, for the starts and the ends of queues; None: no bound."""
        return (
            None if self.since_ms is None else self.since_ms - CLOCK_STEP_MS,
            None if self.until_ms is None else self.until_ms + CLOCK_STEP_MS,
        )

    def takes(self, queue: Queue) -> bool:
        """Return whether rows of *queue* may pass."""
        topic, qid = queue
        return all(test(topic if name == "topic" else qid) for name, test in self.tests)

    def starts(self, offsets: Offsets, at_since: Mapping[Queue, int]) -> Offsets:
        """Return the query's start *offsets*, pruned; *at_since*: the offsets at the first of
        ``lookups_ms``.
        """
        return self._bounded(offsets, self.least, at_since, max)

    def ends(self, offsets: Offsets, at_until: Mapping[Queue, int]) -> Offsets:
        """Return the query's end *offsets*, pruned; *at_until*: the offsets at the second of
        ``lookups_ms``. Brokers of 4.9 return the nearest message, which may be the one before.
        """
        following = {queue: offset + 1 for queue, offset in at_until.items()}
        return self._bounded(offsets, self.below, following, min)

    def _bounded(
        self,
        offsets: Offsets,
        bound: int | None,
        at: Mapping[Queue, int],
        choose: Callable[[int, int], int],
    ) -> Offsets:
        def of(queue: Queue, offset: int) -> int:
            bounds = [each for each in (bound, at.get(queue)) if each is not None]
            for each in bounds:
                offset = choose(offset, each)
            return offset

        return sorted_offsets(
            (queue, of(queue, offset))
            for queue, offset in flat(offsets).items()
            if self.takes(queue)
        )


def pruning(filters: Iterable[object]) -> tuple[Pruning, list[object]]:
    """Return the bounds set by *filters*, and the filters that Spark has to apply itself."""
    found, left = Pruning(), []
    for each in filters:
        narrower, exact = _narrowed(found, each)
        found = narrower or found
        if narrower is None or not exact:
            left.append(each)
    return found, left


def _narrowed(found: Pruning, given: Any) -> tuple[Pruning | None, bool]:
    """Return *found* narrowed by *given* (None if it cannot prune), and whether that is exact."""
    kind, column = type(given).__name__, getattr(given, "attribute", ())
    if column in (("topic",), ("qid",)):
        test = _test(kind, given)
        if test is not None:
            return replace(found, tests=(*found.tests, (column[0], test))), True
    if kind == "Not":
        child = given.child
        column, test = getattr(child, "attribute", ()), _test(type(child).__name__, child)
        if column in (("topic",), ("qid",)) and test is not None:
            if type(child).__name__ == "In" and None in child.value:
                test = _any_text  # NOT IN a list with NULL is true for no row
            return replace(found, tests=(*found.tests, (column[0], _negated(test)))), True
        return None, False
    if column in (("offset",), ("timestamp",)) and kind == "IsNotNull":
        return found, True
    if kind == "In" and (hull := _hull(given.value)) is not None:
        least, most = hull
        if column == ("offset",) and isinstance(least, int):
            return _with_offsets(found, least, most + 1), False
        if column == ("timestamp",) and isinstance(least, datetime):
            return _with_times(found, _around(least)[0], _around(most)[1]), False
        return None, False
    if column == ("offset",) and isinstance(getattr(given, "value", None), int):
        low, high = _interval(kind, given.value, given.value + 1)
        if (low, high) != (None, None):
            return _with_offsets(found, low, high), True
    if column == ("timestamp",) and isinstance(getattr(given, "value", None), datetime):
        low, high = _interval(kind, *_around(given.value))
        if (low, high) != (None, None):
            return _with_times(found, low, high), False
    return None, False


def _test(kind: str, given: Any) -> Test | None:
    """Return the test of a filter on a text column; None for an unknown kind."""
    if kind == "IsNotNull":
        return _any_text
    value = given.value if hasattr(given, "value") else None
    if kind == "In" and isinstance(value, Sequence) and not isinstance(value, str):
        return lambda text: text in value
    if not isinstance(value, str):
        return None
    tests: dict[str, Test] = {
        "EqualTo": lambda text: text == value,
        "EqualNullSafe": lambda text: text == value,
        "StringStartsWith": lambda text: text.startswith(value),
        "StringEndsWith": lambda text: text.endswith(value),
        "StringContains": lambda text: value in text,
    }
    return tests.get(kind)


def _any_text(_text: str) -> bool:
    return True


def _negated(test: Test) -> Test:
    return lambda text: not test(text)


def _hull(values: Iterable[Any]) -> tuple[Any, Any] | None:
    """Return the least and the greatest of *values*; None if they are not of one kind."""
    found = [each for each in values if each is not None]
    if len({type(each) for each in found}) != 1:
        return None
    return min(found), max(found)


def _interval(kind: str, value: int, following: int) -> tuple[int | None, int | None]:
    """Return the half-open interval of numbers that pass; *following*: the one after *value*."""
    intervals: dict[str, tuple[int | None, int | None]] = {
        "EqualTo": (value, following),
        "EqualNullSafe": (value, following),
        "GreaterThanOrEqual": (value, None),
        "GreaterThan": (following, None),
        "LessThan": (None, value),
        "LessThanOrEqual": (None, following),
    }
    return intervals.get(kind, (None, None))


def _around(at: datetime) -> tuple[int, int]:
    """Return *at* in milliseconds since 1970, rounded down and up: stored times are whole."""
    whole, rest = divmod((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH, _MS)
    return whole + bool(rest), whole + 1


def _with_offsets(found: Pruning, low: int | None, high: int | None) -> Pruning:
    return replace(
        found, least=_tighter(max, found.least, low), below=_tighter(min, found.below, high)
    )


def _with_times(found: Pruning, low: int | None, high: int | None) -> Pruning:
    return replace(
        found,
        since_ms=_tighter(max, found.since_ms, low),
        until_ms=_tighter(min, found.until_ms, high),
    )


def _tighter(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)
