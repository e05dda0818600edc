"""Filter pushdown: the queues and offsets that a query's filters leave to read. Pure.

Spark's filters are identified by their class names, so that this module does not import Spark.
Filters on topic, qid and offset are applied exactly; Spark does not apply them again. Filters on
times prune by the broker's lookup (the first message stored at or after a time), and Spark applies
them again; a queue whose stored times go backwards may be cut too short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from thin_client.spark.offsets import Offsets, Queue, flat, sorted_offsets

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
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

    def takes(self, queue: Queue) -> bool:
        """Return whether rows of *queue* may pass."""
        topic, qid = queue
        return all(test(topic if name == "topic" else qid) for name, test in self.tests)

    def starts(self, offsets: Offsets, at_since: Mapping[Queue, int]) -> Offsets:
        """Return the query's start *offsets*, pruned; *at_since*: the offsets at ``since_ms``."""
        return self._bounded(offsets, self.least, at_since, max)

    def ends(self, offsets: Offsets, at_until: Mapping[Queue, int]) -> Offsets:
        """Return the query's end *offsets*, pruned; *at_until*: the offsets at ``until_ms``."""
        return self._bounded(offsets, self.below, at_until, min)

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
    if column == ("offset",) and kind == "IsNotNull":
        return found, True
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
        return lambda text: True
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
