"""A pipeline that is given up frees its bodies at once, without the garbage collector."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.group.group_buffer import GroupBuffer, PullWish
from proxy.core.jobs.window import Budget
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from testkit.messages import message
from testkit.pipelines import HOLDER, MS, Budgets, lease, pipeline, rules
from tests.support.garbage import Body, no_collector

_BODY = b'{"id": 1, "padding": "%s"}' % (b"x" * 1000)
_PAUSED = PausedKey(0, by="test")


def _fed(messages: int = 8, keys: int = 2, **options: Any) -> QueuePipeline:
    """Return a pipeline with messages of *keys* keys in turn."""
    fed = pipeline(**options)
    fed.on_messages(
        [
            replace(message(offset, key=f"k{offset % keys}"), body=Body(_BODY))
            for offset in range(messages)
        ],
        next_offset=messages,
    )
    return fed


def _leased(of: QueuePipeline) -> list[Lease]:
    """Lease runs, as an answer that is being sent has them."""
    return list(of.lengthen(lease(of), max_run=3, max_jobs=100, max_bytes=1 << 30))


def _retrying(of: QueuePipeline) -> None:
    (first, *_) = lease(of, 1)
    of.settle(nacked=[Nack(first.lease_id)], now_ns=0)


def _offered(of: QueuePipeline) -> None:
    (first, *_) = lease(of, 1)
    of.settle(released=[first.lease_id], now_ns=0)


def _paused(of: QueuePipeline) -> None:
    of.pause(b"k0", _PAUSED)
    lease(of)


def _with_another_key(of: QueuePipeline) -> None:
    of.change_rules(replace(of.rules, order_key=compile_order_key("$.id")))
    of.plan_key_change()
    of.key_change_recorded()
    assert of.jobs.change is not None


STATES: dict[str, Callable[[QueuePipeline], object]] = {
    "ready and chained": lambda of: None,
    "leased in runs": _leased,
    "waiting for a retry": _retrying,
    "offered again": _offered,
    "set aside for a pause": _paused,
    "paused as a whole": lambda of: of.pause(EVERYTHING, _PAUSED),
    "changing its order key": _with_another_key,
}


@pytest.mark.parametrize("state", STATES)
def test_a_closed_pipeline_frees_its_bodies_although_others_refer_to_it(state: str) -> None:
    """Leases stand for answers under way, which refer to jobs of the queue."""
    with no_collector():
        before = Body.alive()
        budgets = Budgets()
        fed = _fed(budgets=budgets)
        assert Body.alive() == before + 8
        kept = STATES[state](fed)
        fed.close()
        if isinstance(kept, list):  # only what the answer contains stays
            assert Body.alive() <= before + len(kept)
            kept.clear()
        assert Body.alive() == before
        assert budgets.memory.used == budgets.leases.used == 0


def test_one_lease_keeps_no_more_than_its_own_body() -> None:
    """The jobs of a chain are linked, and so are the leases of a run."""
    with no_collector():
        before = Body.alive()
        fed = _fed(messages=64, keys=1)
        first = _leased(fed)[0]
        fed.close()
        assert Body.alive() == before + 1
        del first
        assert Body.alive() == before


def test_a_closed_pipeline_is_freed_itself() -> None:
    """Its offsets and attempts take memory as well, and are not counted any more."""
    with no_collector():
        budgets = Budgets()
        buffer = GroupBuffer(budgets.leases)
        fed = _fed(budgets=budgets)
        alive = weakref.ref(fed)
        buffer.add(fed)
        wish = PullWish(HOLDER, None, max_jobs=8, max_bytes=1 << 20)
        batches = buffer.lease(wish, now_ns=MS)
        assert batches
        buffer.remove(fed)
        assert alive() is not None
        del fed, batches
        assert alive() is None


def test_unfinished_offsets_of_a_closed_pipeline_stay_unfinished() -> None:
    """A commit under way must not pass them."""
    fed = _fed()
    (first, *_) = lease(fed, 1)
    fed.settle(acked=[first.lease_id], now_ns=0)
    committable, unfinished = fed.committable, fed.jobs.unfinished
    fed.close()
    assert (committable, unfinished) == (1, 7)
    assert (fed.committable, fed.jobs.unfinished) == (1, 7)
    assert list(fed.snapshot().unfinished) == list(range(1, 8))


def test_spilled_and_unloaded_jobs_are_dropped_with_their_queue() -> None:
    with no_collector():
        before = Body.alive()
        budgets = Budgets(memory=Budget(20_000))
        fed = _fed(
            messages=64, keys=3, wanted=rules(max_jobs=16, max_jobs_per_key=2), budgets=budgets
        )
        _retrying(fed)
        fed.room(demand=True)
        fed.take_refills()
        fed.close()
        assert Body.alive() == before
        assert budgets.memory.used == 0
