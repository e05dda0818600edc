"""Limits of reading ahead of clients."""

from __future__ import annotations

from array import array

import pytest

from proxy.core.keys.ids import Epoch
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Snapshot
from testkit.messages import keyed
from testkit.pipelines import lease, pipeline, rules


def test_a_queue_with_plenty_of_ready_jobs_is_read_on_once_they_are_few() -> None:
    ready = [keyed(number, f"k{number}") for number in range(2048)]
    queue = pipeline(rules(max_jobs=20_000), messages=ready)
    assert queue.room() == 0
    given = lease(queue, 1000)
    queue.settle(acked=[each.lease_id for each in given], now_ns=0)
    assert queue.room() == 0, "no reads of a few"
    lease(queue, 100)
    assert queue.room() > 1000


@pytest.mark.parametrize("order_key", ["QID", "KEY"])
@pytest.mark.parametrize("paused", [False, True])
def test_what_an_earlier_owner_had_in_memory_is_read_however_much_is_spilled(
    order_key: str, paused: bool
) -> None:
    """Nothing is refilled before it, so a window that the spilled messages alone fill would be full
    for ever: of a single key, without clients, or while the group is paused.
    """
    key = b"\xff" if order_key == "QID" else b"a"
    spilled = {key: array("q", range(9))}
    resume = Snapshot(Epoch(1), 0, 10, (9,), {}, spilled)
    queue = pipeline(rules(order_key, max_jobs=4), epoch=2, resume=resume)
    if paused:
        queue.pause(EVERYTHING, PausedKey(0))
    assert queue.room() > 0
    (refill,) = queue.on_messages([keyed(9, "a")], next_offset=10).refills
    assert (refill.key, refill.offsets[0]) == (key, 0)
    assert queue.room() == 0
    past = order_key == "KEY" and not paused
    assert (queue.room(demand=True) > 0) == past, "otherwise more messages do not help"
