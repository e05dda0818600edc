"""First jobs that cannot be delivered are unloaded from a full window, and read again in time."""

from __future__ import annotations

import pytest

from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack, Outcome, Skip
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.key_views import KeyState, KeyViews
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import PausedKey
from testkit.messages import keyed
from testkit.pipelines import MS, Budgets, lease, offsets, pipeline, rules

PLACES = 4
RETRY = RetryPolicy((100, 100, 100), 9, OnExhausted.BLOCK)


def full(budgets: Budgets | None = None, *, paused: bool = False) -> QueuePipeline:
    """Return a window full of keys k0 to k3, which failed, or are *paused*."""
    queue = pipeline(rules(max_jobs=PLACES, retry=RETRY), budgets=budgets)
    if paused:
        for number in range(PLACES):
            queue.pause(b"k%d" % number, PausedKey(0))
    queue.on_messages([keyed(n, f"k{n}") for n in range(PLACES)], next_offset=PLACES)
    leases = lease(queue)
    if not paused:
        assert offsets(leases) == list(range(PLACES))
        queue.settle(nacked=[Nack(each.lease_id, reason="no") for each in leases], now_ns=0)
    return queue


def read_again(queue: QueuePipeline, effects: Effects, *, gone: bool = False) -> Effects:
    """Answer all refills of *effects*; the messages are *gone* if deleted."""
    later = Effects()
    wanted = list(effects.refills)
    while wanted:
        refill = wanted.pop(0)
        messages = [] if gone else [keyed(each, refill.key.decode()) for each in refill.offsets]
        came = queue.refilled(refill, messages)
        later.finished += came.finished
        wanted += came.refills
    return later


@pytest.mark.parametrize("paused", [False, True])
def test_a_full_window_of_undeliverable_keys_is_read_past(paused: bool) -> None:
    queue = full(paused=paused)
    assert queue.room() == 0
    assert queue.room(demand=True) > 0
    queue.on_messages([keyed(4, "healthy")], next_offset=5)
    assert offsets(lease(queue)) == [4]
    assert (queue.committable, queue.jobs.unfinished) == (0, 5)


def test_an_unloaded_job_comes_back_complete_when_its_retry_is_due() -> None:
    budgets = Budgets()
    queue = full(budgets)
    queue.room(demand=True)
    down = [job for job in queue.jobs.chains.heads() if queue.jobs.residency.unloaded.has(job)]
    assert down
    assert all(job.message is None for job in down)
    key = down[0].key or b""
    view = KeyViews(queue, now_ns=50 * MS, wall_ms=10).of(key)
    assert (view.state, view.attempts, view.last_error) == (KeyState.RETRYING, 1, "no")
    assert (view.age_ms is not None, view.blocked) == (True, True)

    assert queue.on_time(now_ns=99 * MS).refills == []
    read_again(queue, queue.on_time(now_ns=100 * MS))
    leases = lease(queue, now_ns=100 * MS)
    assert sorted(offsets(leases)) == list(range(PLACES))
    assert {each.job.attempts for each in leases} == {2}
    assert all(each.body for each in leases)
    queue.settle(acked=[each.lease_id for each in leases], now_ns=100 * MS)
    assert (queue.committable, budgets.memory.used) == (PLACES, 0)


def test_a_resumed_key_comes_back() -> None:
    queue = full(paused=True)
    queue.room(demand=True)
    for number in range(PLACES):
        queue.resume(b"k%d" % number)
        read_again(queue, queue.resumed(b"k%d" % number))
    assert sorted(offsets(lease(queue))) == list(range(PLACES))


def test_an_unloaded_job_may_be_skipped_or_retried() -> None:
    budgets = Budgets()
    queue = full(budgets)
    queue.room(demand=True)
    skipped, *others = [
        job for job in queue.jobs.chains.heads() if queue.jobs.residency.unloaded.has(job)
    ]
    effects = queue.skip(skipped, Skip("audit", skipped.key or b"", None))
    assert effects.finished == [(skipped.offset, Outcome.SKIPPED)]
    for job in [*others, *queue.leases.retrying()]:
        if queue.leases.due_ns(job.offset) is not None:
            queue.retry(job, reset_attempts=False)
            read_again(queue, queue.offer_again(job))
    leases = lease(queue)
    assert sorted(offsets(leases)) == sorted({*range(PLACES)} - {skipped.offset})
    queue.settle(acked=[each.lease_id for each in leases], now_ns=0)
    assert budgets.memory.used == 0


def test_a_job_skipped_while_it_is_read_is_not_delivered() -> None:
    queue = full()
    queue.room(demand=True)
    effects = queue.on_time(now_ns=100 * MS)
    (refill, *_) = effects.refills
    job = queue.head(refill.key)
    assert job is not None
    queue.skip(job, Skip("audit", refill.key, None))
    read_again(queue, effects)
    assert refill.offsets[0] not in offsets(lease(queue, now_ns=100 * MS))


def test_a_job_deleted_by_retention_meanwhile_has_ended() -> None:
    budgets = Budgets()
    queue = full(budgets)
    queue.room(demand=True)
    effects = queue.on_time(now_ns=100 * MS)
    gone = [(refill.offsets[0], Outcome.DELETED) for refill in effects.refills]
    assert read_again(queue, effects, gone=True).finished[: len(gone)] == gone
    assert queue.leases.attempts.keys().isdisjoint(offset for offset, _ in gone)


def test_a_job_paused_while_it_is_read_stays() -> None:
    queue = full()
    queue.room(demand=True)
    effects = queue.on_time(now_ns=100 * MS)
    key = effects.refills[0].key
    queue.pause(key, PausedKey(0))
    read_again(queue, effects)
    assert effects.refills[0].offsets[0] not in offsets(lease(queue, now_ns=100 * MS))
    queue.resume(key)
    queue.resumed(key)
    assert offsets(lease(queue, now_ns=100 * MS)) == [effects.refills[0].offsets[0]]


def test_due_jobs_leave_places_for_new_messages() -> None:
    queue = pipeline(rules(max_jobs=16, retry=RETRY))
    now_ns, at = 0, 0
    for _ in range(12):
        if room := queue.room(demand=True):
            queue.on_messages(
                [keyed(n, f"k{n}") for n in range(at, at + room)], next_offset=at + room
            )
            at += room
        read_again(queue, queue.take_refills())
        leases = lease(queue, now_ns=now_ns)
        nacked = [Nack(each.lease_id) for each in leases]
        read_again(queue, queue.settle(nacked=nacked, now_ns=now_ns))
        assert queue.jobs.residency.taken <= 16
        now_ns += 50 * MS
    assert at > 40
