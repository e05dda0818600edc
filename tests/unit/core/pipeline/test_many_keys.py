"""An operation on one key takes as many steps among thousands of keys as among a few."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack
from proxy.core.ownership.recording import Recording
from proxy.core.pipeline.key_views import KeyViews
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import PausedKey
from testkit.messages import keyed
from testkit.pipelines import lease, pipeline, rules

_FEW, _MANY = 50, 600
#: Type for ``sys.settrace``.
TraceFunction = Callable[[FrameType, str, Any], Any]
_HOW = PausedKey(1, "ann", "it floods")


def queue_of(keys: int) -> QueuePipeline:
    wanted = rules(retry=RetryPolicy((50,), 16, OnExhausted.BLOCK), max_jobs=4 * _MANY)
    return pipeline(wanted, messages=[keyed(n, f"key-{n}") for n in range(keys)])


def failing(keys: int) -> QueuePipeline:
    queue = queue_of(keys)
    queue.settle(nacked=[Nack(each.lease_id) for each in lease(queue)], now_ns=0)
    return queue


def names(keys: int) -> list[bytes]:
    return [b"key-%d" % n for n in range(keys)]


def pausing(keys: int) -> Callable[[], object]:
    """Return an operation that pauses keys, each recorded before the next."""
    queue = queue_of(keys)
    records = Recording(queue, None)

    def act() -> None:
        for at, key in enumerate([b"first", *names(keys)]):
            queue.pause(key, _HOW)
            records.written(records.due(1), at=at)

    return act


def resuming(keys: int) -> Callable[[], object]:
    queue = queue_of(keys)
    for key in names(keys):
        queue.pause(key, _HOW)
    lease(queue)  # all are set aside
    return lambda: [(queue.resume(key), queue.resumed(key)) for key in names(keys)]


def skipping(keys: int) -> Callable[[], object]:
    queue = failing(keys)

    def act() -> None:
        for key in names(keys):
            job = queue.head(key)
            assert job is not None
            queue.operator.check_free(job)
            queue.settlement.withdraw(job)

    return act


def looking(keys: int) -> Callable[[], object]:
    queue = failing(keys)
    return lambda: [KeyViews(queue, now_ns=1, wall_ms=1).of(key) for key in names(keys)]


def holding(keys: int) -> Callable[[], object]:
    queue = queue_of(keys)
    return lambda: [queue.jobs.chains.hold(key) for key in reversed(names(keys))]


def steps(act: Callable[[], object]) -> int:
    """Return the number of interpreter instructions, including comprehensions."""
    count = 0

    def note(frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("prepared", [pausing, resuming, skipping, looking, holding])
def test_the_steps_grow_with_the_keys(prepared: Callable[[int], Callable[[], object]]) -> None:
    few, many = (steps(prepared(keys)) for keys in (_FEW, _MANY))
    assert many < 2 * few * _MANY / _FEW
