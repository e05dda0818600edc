"""Periodic work that does not grow with the number of idle groups and queues."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.lane.recent_changes import RECENT_NS, RecentChanges
from proxy.upstream import broker_tasks
from proxy.upstream.broker_tasks import Selection
from proxy.upstream.pace import interval_s


class Queue:
    closed = False


@pytest.mark.parametrize(
    ("number", "expected"), [(0, 15.0), (8, 15.0), (450, 15.0), (900, 30.0), (100_000, 300.0)]
)
def test_an_interval_grows_with_the_number_of_things(number: int, expected: float) -> None:
    assert interval_s(number, least_s=15.0, most_s=300.0, per_s=30.0) == expected


def test_recent_changes_are_forgotten_in_time() -> None:
    recent, names = RecentChanges(), [Queue() for _ in range(3)]
    one, two, three = names
    recent.note(one, 0)  # type: ignore[arg-type]
    recent.note(two, 5)  # type: ignore[arg-type]
    recent.note(one, 10)  # type: ignore[arg-type]
    recent.note(three, 10)  # type: ignore[arg-type]
    recent.forget(three)  # type: ignore[arg-type]
    assert list(recent.since(RECENT_NS)) == [two, one]
    assert list(recent.since(RECENT_NS + 6)) == [one]
    assert list(recent.since(RECENT_NS + 10)) == []
    assert len(recent) == 0


class Lane:
    def __init__(self, queues: int) -> None:
        self.buffer: list[Any] = [Queue() for _ in range(queues)]
        self.recent = RecentChanges()


def test_of_very_many_queues_only_changed_ones_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10**12
    monkeypatch.setattr(broker_tasks, "now_ns", lambda: now)
    lanes = [Lane(100) for _ in range(3)]
    selection = Selection(lanes)  # type: ignore[arg-type]

    def looked_at() -> int:
        return len(list(selection.take()))

    assert looked_at() == 300, "the first look is at all"
    now += 10**9
    assert looked_at() == 0
    lanes[1].recent.note(lanes[1].buffer[7], now)
    assert looked_at() == 1
    lanes[0].recent.note(lanes[0].buffer[3], now)
    lanes[0].buffer[3].closed = True
    lanes[1].recent.forget(lanes[1].buffer[7])
    assert looked_at() == 0, "not at one that is not owned any more"
    lanes[0].recent.note(lanes[0].buffer[3], now)
    assert not lanes[0].recent
    now += broker_tasks.WHOLE_NS
    assert looked_at() == 300, "a change that nothing noted is found in time"
    now += 10**9
    del lanes[2:]
    assert looked_at() == 200, "few queues are all looked at"
