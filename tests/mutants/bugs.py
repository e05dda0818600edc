"""One bug for each invariant: patched into the gateway, or into a client of it.

The product has no switches for bugs; each is a few lines here that replace a method.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar
from unittest.mock import patch

from proxy.actions.pipeline import Actions
from proxy.core.group.queue_census import QueueCensus
from proxy.core.group.token_bucket import TokenBucket
from proxy.core.jobs.chains import Job, JobChains, JobState
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.residency import Residency
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.jobs.window import FlowWindow
from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import RetryPolicy
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.leases.verdicts import Outcome
from proxy.core.ownership.recording import Recording
from proxy.core.ownership.steady_members import SteadyMembers
from proxy.core.parking import copy_intake
from proxy.core.pipeline.actions import Unreported
from proxy.core.pipeline.dispatch import Dispatch
from proxy.core.pipeline.intake import Intake
from proxy.core.pipeline.pauses import Pauses
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Own
from proxy.core.records.replay import LastOwner
from proxy.downstream.port import requests
from proxy.downstream.port.replays import Replays
from proxy.upstream.audit import Audit, Entry
from proxy.upstream.commits.committer import Committer
from proxy.upstream.ownership import owned_queue
from proxy.upstream.ownership.period_start import PeriodStart
from proxy.upstream.records.ownership_log import OwnershipLog
from proxy.upstream.records.recorder import Recorder
from tests.mutants import action_bugs
from tests.mutants.clients import Worker
from tests.mutants.mutant import Mutant, all_of, method_of, property_of, stand_in
from tests.mutants.scenarios import (
    acted,
    acting,
    burst,
    crashed,
    crowded,
    cut_off,
    handed_over,
    limited,
    outlived,
    parked,
    recreated,
    short,
    shortened,
    stuck,
)

# ---- order, leases, verdicts --------------------------------------------------------------------


def _newest_first(original: Any, chains: JobChains, job: Any, **how: Any) -> Any:
    """Let a job whose key waits take the place of the waiting one."""
    two_before = job.key is not None and chains.jobs_of(job.key) == 2
    overtaken = chains.cut(job.key, keep=1) if two_before else []
    ready = original(chains, job, **how)
    for each in overtaken:
        each.move(JobState.CHAINED, JobState.NEW)
        original(chains, each)
    return ready


def _successor_at_once(original: Any, chains: JobChains) -> Any:
    """Continue the chain of a polled job without waiting for it."""
    job = original(chains)
    if job is not None and job.successor is not None:
        behind = chains.cut(job.key, keep=1)
        chains.take(job.key)
        for each in behind:
            each.move(JobState.CHAINED, JobState.NEW)
            chains.submit(each, reactivated=True)
    return job


def _offered_while_leased(original: Any, book: LeaseBook, lease: Any, deadline_ns: int) -> None:
    """Report a lease as held to its client, although it ended."""
    original(book, lease, deadline_ns)
    if lease.run is None:
        book.end_one(lease)
        book.offer(lease.job)


_later_owner = False


def _read_by_a_later_owner(original: Any, pipeline: QueuePipeline, *read: Any, **where: Any) -> Any:
    global _later_owner
    _later_owner = not pipeline.qid.endswith("#1")
    effects = original(pipeline, *read, **where)
    _later_owner = False
    return effects


def _second_first(original: Any, chains: JobChains, job: Any, **how: Any) -> Any:
    """Move the only undelivered job of a key behind the next one."""
    first, *more = list(chains.jobs(job.key)) if job.key in chains.keys else [None]
    if not _later_owner or more or first is None or first.state is not JobState.READY:
        return original(chains, job, **how)
    chains.take_ready(first)
    chains.take(job.key)
    ready = original(chains, job, **how)
    first.move(JobState.RUNNING, JobState.NEW)
    original(chains, first)
    return ready


async def _acks_first(original: Any, worker: Worker, context: Any, message: Any) -> str:
    await worker.ack(context, message)
    await original(worker, context, message)
    return "nothing"


async def _acks_at_work(original: Any, worker: Worker, context: Any, message: Any) -> None:
    await worker.ack(context, message)
    await original(worker, context, message)


def _expired_is_alive(original: Any, book: LeaseBook, lease_id: Any) -> Any:
    """Return the lease of that id, alive or not."""
    return original(book, lease_id) or _EXPIRED.pop((id(book), lease_id), None)


_EXPIRED: dict[tuple[int, Any], Any] = {}


def _remembered(original: Any, book: LeaseBook, now_ns: int) -> Any:
    ended = original(book, now_ns)
    leases = chain.from_iterable(ended)
    _EXPIRED.update({(id(book), lease.lease_id): lease for lease in leases})
    return ended


def _no_end(original: Any, book: LeaseBook, lease: Any) -> Any:
    """Settle a lease that may have ended before."""
    return original(book, lease) if book.at(lease.job.offset) is lease else lease


def _one_by_one(_original: Any, _book: LeaseBook, lease_ids: Any) -> Any:
    """Judge each ack separately, so that ``live`` and ``end_one`` are asked."""
    return [], next(lease_ids, None)


def _expiry_finishes(original: Any, pipeline: QueuePipeline, *, now_ns: int) -> Any:
    effects = original(pipeline, now_ns=now_ns)
    for lease in effects.expired:
        if lease.job in pipeline.leases.offered:
            pipeline.leases.offered.pop(lease.job)
            pipeline.settlement.finish(lease.job, Outcome.OK, effects)
    return effects


def _told_twice(original: Any, pipeline: QueuePipeline, job: Any) -> Any:
    effects = original(pipeline, job)
    effects.finished.append((job.offset, Outcome.OK))
    return effects


class _Forgetful(Job):
    """Can forget that it was delivered."""

    def forget_hand_out(self) -> None:
        self.attempts -= 1


def _expiry_is_free(original: Any, book: LeaseBook, now_ns: int) -> Any:
    ended = original(book, now_ns)
    for lease in chain.from_iterable(ended):
        lease.job.forget_hand_out()
    return ended


# ---- parked keys --------------------------------------------------------------------------------


def _held_in_name(_original: Any, chains: JobChains, key: bytes) -> None:
    """Continue a key whose job is to be copied."""
    if key in chains.keys:
        chains.held_keys.add(key)


def _whatever_is_ready(original: Any, dispatch: Dispatch, *how: Any) -> Any:
    with patch.object(dispatch, "held", ()):
        return original(dispatch, *how)


def _last_first(original: Any, jobs: Jobs, refill: Any, found: Any) -> Any:
    return original(jobs, refill, found if jobs.residency.wanted is None else list(found)[::-1])


# ---- ownership and commits ----------------------------------------------------------------------


def _always_epoch_1(original: Any, pipeline: QueuePipeline, **given: Any) -> None:
    original(pipeline, **{**given, "epoch": Epoch(1)})


def _trusts_for_ever(_original: Any, pipeline: QueuePipeline, _now_ns: int) -> bool:
    return not (pipeline.draining or pipeline.closed)


async def _no_commit(
    original: Any, committer: Committer, lane: Any, pipeline: Any, **how: Any
) -> bool:
    return True if not pipeline.draining else await original(committer, lane, pipeline, **how)


class _Stale:
    """Pipelines whose next commit is wrong, and the number of looks at committable offsets before
    that.
    """

    commits = 0
    reads: ClassVar[dict[int, int]] = {}


async def _now_and_then_stale(
    original: Any, committer: Committer, lane: Any, pipeline: Any, **how: Any
) -> bool:
    _Stale.commits += 1
    if _Stale.commits % 5 == 0:
        _Stale.reads[id(pipeline)] = 2
    return bool(await original(committer, lane, pipeline, **how))


def _stale(pipeline: QueuePipeline, offset: int) -> int:
    left = _Stale.reads.pop(id(pipeline), 0)
    if left > 1:
        _Stale.reads[id(pipeline)] = left - 1
    return offset // 2 if left else offset


async def _knows_nothing(original: Any, log: OwnershipLog, *queue: Any, **where: Any) -> Any:
    last, end = await original(log, *queue, **where)
    return (last if last is None else replace(last, snapshot=None)), end


async def _nothing(*_: Any, **__: Any) -> bool:
    return True


async def _no_commit_at_the_end(
    original: Any, committer: Any, lane: Any, pipeline: Any, **how: Any
) -> bool:
    return True if pipeline.draining else await original(committer, lane, pipeline, **how)


async def _no_record_at_the_end(
    original: Any, recorder: Any, lane: Any, pipeline: Any, **how: Any
) -> int | None:
    return None if pipeline.draining else await original(recorder, lane, pipeline, **how)


def _loses_some(original: Any, pipeline: QueuePipeline, messages: Any, **where: Any) -> Any:
    kept = [message for message in messages if message.queue_offset % 50 != 20]
    return original(pipeline, kept, **where)


# ---- time ---------------------------------------------------------------------------------------


def _no_push(original: Any, chains: JobChains, job: Any) -> Any:
    successor = original(chains, job)
    if successor is not None and job.offset % 7 == 5:
        chains.take_ready(successor)  # no client has it
    return successor


def _no_room_beside_a_lease(original: Any, pipeline: QueuePipeline, **how: Any) -> int:
    return 0 if pipeline.leases else original(pipeline, **how)


def _hashed(original: Any, intake: Intake, message: Any, key: bytes) -> Any:
    return original(intake, message, bytes([len(key) % 256]))


def _filled_up(original: Any, bucket: TokenBucket, *, rate: float, **more: Any) -> None:
    gains = rate > bucket.rate
    original(bucket, rate=rate, **more)
    if gains:
        bucket.fill_up()


def _never_again(original: Any, book: LeaseBook, job: Any, since_ns: int = 0) -> None:
    if job.offset != 17:
        original(book, job)


def _longer_each_time(
    original: Any, start: PeriodStart, rules: Any, last: Any, *more: Any, **named: Any
) -> Own:
    own = original(start, rules, last, *more, **named)
    before_ms = 0 if last is None else last.own.longest_lease_ms
    return replace(own, longest_lease_ms=own.longest_lease_ms + before_ms)


def _with_former_ones(original: Any, steady: SteadyMembers, members: Any, **now: Any) -> list[str]:
    """Return all members that were ever listed."""
    known = vars(steady).setdefault("former", set())
    known.update(original(steady, members, **now))
    return sorted(known)


def _knows_no_pause(original: Any, dispatch: Dispatch, *how: Any) -> Any:
    with patch.object(dispatch, "pauses", Pauses(TrackedDict())):
        return original(dispatch, *how)


@asynccontextmanager
async def _off_the_record(*_: Any) -> AsyncIterator[Entry]:
    yield Entry("none", None)


MUTANTS = (
    Mutant("O1", "a job overtakes one of its key in the chain",
           method_of(JobChains, "submit", _newest_first)),
    Mutant("O2", "the successor of a job is pushed before the job has finished",
           method_of(JobChains, "poll", _successor_at_once)),
    Mutant("O3", "an extended lease is offered to others",
           method_of(LeaseBook, "extend", _offered_while_leased)),
    Mutant("O3b", "a client acks a message before it handles it",
           method_of(Worker, "handle", _acks_first), short),
    Mutant("A1", "a client acks a message while its handler runs",
           method_of(Worker, "work", _acks_at_work), short),
    Mutant("O4", "a new owner repeats all messages, the second of each key first",
           all_of(method_of(OwnershipLog, "last", _knows_nothing),
                  method_of(QueuePipeline, "on_messages", _read_by_a_later_owner),
                  method_of(JobChains, "submit", _second_first))),
    Mutant("W1", "the epoch is always 1",
           method_of(QueuePipeline, "__init__", _always_epoch_1)),
    Mutant("W2", "trust never lapses",
           method_of(QueuePipeline, "may_hand_out", _trusts_for_ever), cut_off),
    Mutant("W3", "an ack of an expired lease counts",
           all_of(method_of(LeaseBook, "live", _expired_is_alive),
                  method_of(LeaseBook, "expired", _remembered),
                  method_of(LeaseBook, "end_handled", _one_by_one),
                  method_of(LeaseBook, "end_one", _no_end))),
    Mutant("C1", "a commit is sometimes lower than the one before",
           all_of(method_of(Committer, "commit", _now_and_then_stale),
                  property_of(QueuePipeline, "committable", _stale))),
    Mutant("C2", "the highest offset read is committed",
           property_of(QueuePipeline, "recorded", lambda self, offset: self.position)),
    Mutant("C3", "commits happen only at a hand-over",
           method_of(Committer, "commit", _no_commit)),
    Mutant("D1", "some messages are skipped",
           method_of(QueuePipeline, "on_messages", _loses_some)),
    Mutant("D2", "an expired lease counts as an ack",
           method_of(QueuePipeline, "on_time", _expiry_finishes)),
    Mutant("D2", "a transform that fails drops its message",
           method_of(Actions, "run", action_bugs.error_is_a_no), acting),
    Mutant("D2", "an action that fails is a success, as in DDMQ",
           stand_in(action_bugs.ErrorIsASuccess), acting),
    Mutant("D2", "a message on which an action failed is delivered unchanged",
           method_of(Dispatch, "_act", action_bugs.as_it_is_the_second_time), acting),
    Mutant("D3", "a dead letter is also reported as acked",
           method_of(QueuePipeline, "dead_lettered", _told_twice)),
    Mutant("D3b", "an expired delivery does not count",
           all_of(stand_in(_Forgetful),
                  method_of(LeaseBook, "expired", _expiry_is_free))),
    Mutant("D3b", "a delivery on which an action fails does not count",
           method_of(Unreported, "ended", action_bugs.error_is_free), acting),
    Mutant("D4", "a new owner ignores the ownership records",
           method_of(OwnershipLog, "last", _knows_nothing)),
    Mutant("D5", "a hand-over neither commits nor records",
           all_of(method_of(owned_queue, "write_end", _nothing),
                  method_of(Recorder, "record", _no_record_at_the_end),
                  method_of(Committer, "commit", _no_commit_at_the_end)), handed_over),
    Mutant("R1", "retries are immediate",
           method_of(RetryPolicy, "delay_ns", lambda *_: 0)),
    Mutant("R2", "extensions are confirmed and ignored",
           method_of(LeaseBook, "extend", lambda *_: None)),
    Mutant("R3", "messages behind a parked one are delivered",
           all_of(method_of(JobChains, "hold", _held_in_name),
                  method_of(Dispatch, "lease", _whatever_is_ready)), parked),
    Mutant("R3", "a redrive begins at the tail",
           method_of(Jobs, "refilled", _last_first), parked),
    Mutant("R4", "ready messages of a paused key are delivered",
           method_of(Dispatch, "lease", _knows_no_pause), acted),
    Mutant("R4", "no record lists paused keys",
           property_of(QueuePipeline, "recorded_pauses", lambda *_: TrackedDict()), acted),
    Mutant("R5", "operations are not audited",
           method_of(Audit, "change", _off_the_record), acted),
    Mutant("N1", "nothing is read while a lease is alive",
           method_of(QueuePipeline, "room", _no_room_beside_a_lease), stuck),
    Mutant("N1", "keys are hashed to 8 bits: to their length",
           method_of(Intake, "job", _hashed)),
    Mutant("N1", "a window full of stuck keys is not shared among keys",
           method_of(Residency, "_share_out", lambda *_: None), crowded),
    Mutant("N2", "reading never pauses",
           all_of(method_of(FlowWindow, "room", lambda *_, **__: 256),
                  property_of(Residency, "left", lambda *_: 256)), burst),
    Mutant("N3", "an expired job is not offered again",
           method_of(LeaseBook, "offer", _never_again), short),
    Mutant("N4", "the reactivation push is forgotten",
           method_of(JobChains, "finish", _no_push), short),
    Mutant("N5", "a dead member keeps its share of queues",
           method_of(SteadyMembers, "counted", _with_former_ones), acting),
    Mutant("N6", "messages behind others of their key are never spilled",
           all_of(method_of(Residency, "spill", lambda *_: False),
                  method_of(Residency, "_share_out", lambda *_: None)), crowded),
    Mutant("N7", "the recorded lease length grows with every owner",
           method_of(PeriodStart, "_own_record", _longer_each_time), crashed),
    Mutant("N7", "a wait that is over counts in each take-over after it",
           method_of(Recording, "_wait_is_over", lambda *_: False), shortened),
    Mutant("G1", "an owner continues with offsets of a former life of its topic",
           all_of(method_of(LastOwner, "in_life", lambda _, last, *__, **___: last),
                  method_of(owned_queue.OwnedQueue, "lost_tail", lambda *_: None)), recreated),
    Mutant("K1", "no record is rewritten before retention reaches it",
           method_of(Recorder, "watch", lambda *_: True), outlived),
    Mutant("I1", "a delivery drops a property",
           method_of(requests, "user_properties", lambda *_: None), short),
    Mutant("I1", "handlers receive parked copies unconverted",
           method_of(copy_intake, "as_sent", lambda _original, copy: copy), parked),
    Mutant("Q1", "each owner delivers the whole of a limit",
           method_of(QueueCensus, "total", lambda original, *asked: min(1, original(*asked))),
           limited),
    Mutant("Q1", "a new owner starts with a full bucket",
           method_of(TokenBucket, "change", _filled_up), limited),
    Mutant("X1", "a repeated pull gets a new answer",
           method_of(Replays, "find", lambda *_, **__: [])),
)  # fmt: skip
