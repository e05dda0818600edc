"""Reports of a stream's progress."""

from __future__ import annotations

import pytest

from thin_client.spark.reports import AGAIN_S, Outcome, Reports

SOME, MORE = {"a": {"x_0": 4}}, {"a": {"x_0": 5}}


def test_progress_is_reported_once() -> None:
    reports = Reports()
    assert not reports.are_due({}, 0.0), "a query that has not begun"
    assert reports.are_due(SOME, 0.0)
    reports.ended(SOME, Outcome.TAKEN, 0.0)
    assert not reports.are_due(SOME, 10 * AGAIN_S)
    assert reports.are_due(MORE, 0.0)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED])
def test_an_idle_stream_repeats_a_report_without_effect(outcome: Outcome) -> None:
    """Without a next batch the group would have a false lag."""
    reports = Reports()
    reports.ended(SOME, outcome, 5.0)
    assert not reports.are_due(SOME, 5.0 + AGAIN_S - 1), "not at each trigger"
    assert reports.are_due(SOME, 5.0 + AGAIN_S)
    assert reports.are_due(MORE, 6.0)
    reports.ended(SOME, Outcome.TAKEN, 5.0 + AGAIN_S)
    assert not reports.are_due(SOME, 100 * AGAIN_S)
