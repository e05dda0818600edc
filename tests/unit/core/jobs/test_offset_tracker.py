from __future__ import annotations

import pytest

from proxy.core.jobs.offset_tracker import OffsetTracker
from tests.support.allocations import allocated_by


def started(*offsets: int, position: int = 0) -> OffsetTracker:
    tracker = OffsetTracker(position)
    for offset in offsets:
        tracker.start(offset)
    return tracker


def test_the_lowest_unfinished_offset_is_committable_whatever_else_is_finished() -> None:
    tracker = started(0, 1, 2)
    tracker.finish(2)
    tracker.finish(1)
    assert tracker.committable == 0
    tracker.finish(0)
    assert tracker.committable == 3


def test_with_all_finished_the_read_position_is_committable() -> None:
    tracker = started(5, position=5)
    tracker.advance(9)
    assert tracker.committable == 5
    tracker.finish(5)
    assert tracker.committable == tracker.position == 9


def test_gaps_are_neither_unfinished_nor_in_the_way() -> None:
    tracker = started(1, 5, 9)
    assert (list(tracker.unfinished()), len(tracker)) == ([1, 5, 9], 3)
    assert (5 in tracker, 4 in tracker) == (True, False)
    tracker.finish(1)
    assert tracker.committable == 5


def test_the_position_never_falls() -> None:
    tracker = started(7)
    tracker.advance(3)
    assert tracker.position == 8


def test_an_offset_that_was_read_cannot_start_again() -> None:
    with pytest.raises(ValueError, match="offset 4 was read before: the read position is 5"):
        started(4).start(4)


def test_an_offset_finishes_once() -> None:
    tracker = started(4)
    tracker.finish(4)
    with pytest.raises(KeyError):
        tracker.finish(4)


def test_a_stuck_offset_costs_no_memory_for_finished_ones_behind_it() -> None:
    """The span between a stuck key and the read position is unlimited; memory is not."""
    tracker = started(0)

    def pass_by() -> None:
        for offset in range(1, 50_000):
            tracker.start(offset)
            tracker.finish(offset)

    assert allocated_by(pass_by) < 20_000
    assert tracker.committable == 0
    tracker.finish(0)
    assert tracker.committable == 50_000
