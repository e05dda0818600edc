"""The queues of a topic that an operator's verb leaves to other proxies."""

from __future__ import annotations

import time

from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Own
from proxy.core.records.replay import LastOwner
from proxy.operator.recorded_keys import without
from proxy.upstream.ownership.owner_book import OwnerRow
from testkit.pipelines import queue

MANY = 4_000


def row(number: int, owner: str | None, *, clean: bool = False, member: bool = True) -> OwnerRow:
    if owner is None:
        return OwnerRow(queue(number), None, member=False)
    last = LastOwner(Epoch(1), Own(owner, 5_000, 5_000, 0, 1), None, clean)
    return OwnerRow(queue(number), last, member)


def test_queues_of_others_and_free_ones_are_told_apart() -> None:
    rows = [
        row(0, "us"),
        row(1, "other"),
        row(2, "other", clean=True),
        row(3, "other", member=False),
        row(4, None),
    ]
    others, free = without(rows, "us")
    assert [each.queue.queue_id for each in others] == [1]
    assert [each.queue.queue_id for each in free] == [0, 2, 3, 4]


def test_thousands_of_queues_do_not_hold_the_event_loop() -> None:
    """Each free queue was compared with each one of another proxy: 1.3 s."""
    rows = [row(number, ("other", None)[number % 2]) for number in range(MANY)]
    before = time.thread_time()
    others, free = without(rows, "us")
    assert time.thread_time() - before < 0.1
    assert (len(others), len(free)) == (MANY // 2, MANY // 2)
