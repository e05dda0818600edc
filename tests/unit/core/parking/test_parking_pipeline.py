"""Redrives with a rate, and exceptions of parking. ``tests/property`` covers the rest."""

from __future__ import annotations

from array import array

import pytest

from proxy.core.group.group_buffer import Batch
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.ownership.resets import moved_to
from testkit.lanes import Listener, make_lane
from testkit.messages import keyed
from testkit.pipelines import HOLDER, MS, lease, rules
from tests.support.parking_site import RULES, ParkingSite
from tests.unit.core.parking.parked_jobs import parked


def test_a_redrive_with_a_rate_hands_out_one_by_one() -> None:
    site = parked("a", "b")
    twin = site.twin
    assert twin is not None
    site.redrive("a")
    site.apply_effects(twin, twin.redrive(b"b", rate=10))
    site.refill()
    site.refill()
    assert twin.ready == 2
    assert len(lease(twin, now_ns=1 * MS)) == 1
    assert (twin.ready, twin.next_due_ns(2 * MS)) == (0, 101 * MS)
    assert lease(twin, now_ns=100 * MS) == []
    twin.on_time(now_ns=101 * MS)
    assert twin.ready == 1
    assert len(lease(twin, now_ns=101 * MS)) == 1


def test_a_rate_survives_its_owner_and_ends_with_the_redrive() -> None:
    site = parked("a")
    assert site.twin is not None
    site.apply_effects(site.twin, site.twin.redrive(b"a", rate=2.5))
    site.record()
    site.begin()
    site.open_twin()
    assert site.twin.parked[b"a"].rate == 2.5
    site.stop("a")
    assert not site.twin.parked[b"a"].redriven
    assert site.twin.parked[b"a"].rate == 0


def test_a_note_on_a_parked_key_survives_its_owner() -> None:
    site = parked("a")
    site.pipeline.note(b"a", "ask the bank")
    site.pipeline.note(b"b", "not kept: it is neither paused nor parked")
    site.record()
    site.begin()
    assert [site.pipeline.note_of(key) for key in (b"a", b"b")] == ["ask the bank", ""]


def test_a_key_is_not_parked_while_nothing_of_it_is_unfinished() -> None:
    site = ParkingSite()
    assert not site.pipeline.parking.park(b"a")


def test_a_leased_message_is_copied_only_after_its_lease_has_ended() -> None:
    site = ParkingSite()
    site.sent += ["a", "a"]
    site.read()
    (held,) = lease(site.pipeline, holder=HOLDER)
    assert site.pipeline.parking.park(b"a")
    site.record_parked()
    assert site.pipeline.to_copy(b"a", jobs=9, body_bytes=99) == []
    effects = site.pipeline.settle(released=[held.lease_id], now_ns=1)
    assert effects.parking
    assert lease(site.pipeline, now_ns=1) == []
    assert len(site.pipeline.to_copy(b"a", jobs=9, body_bytes=99)) == 2


def test_a_message_being_dead_lettered_is_not_copied_and_the_rest_only_after_it() -> None:
    site = ParkingSite()
    site.sent += ["a", "a"]
    site.read()
    gives_up = RetryPolicy((1,), 1, OnExhausted.DEAD_LETTER)
    site.pipeline.change_rules(rules(**{**RULES, "retry": gives_up}))
    (held,) = lease(site.pipeline, holder=HOLDER)
    (job,) = site.pipeline.settle(nacked=[Nack(held.lease_id)], now_ns=1).dead_letters
    assert site.pipeline.parking.failing(stored_before_ms=1e18) == [b"a"]
    assert site.pipeline.parking.park(b"a", by="retention margin")
    site.record_parked()
    assert site.pipeline.to_copy(b"a", jobs=9, body_bytes=99) == []
    effects = site.pipeline.dead_lettered(job)
    assert (effects.parking, effects.finished) == (True, [(0, Outcome.DEAD_LETTERED)])
    site.done.add(0)
    assert [each.offset for each in site.pipeline.to_copy(b"a", jobs=9, body_bytes=99)] == [1]
    site.finish()


def test_a_message_that_an_operator_retries_anew_does_not_count_as_failing() -> None:
    """Retention may be near: its key would be parked before the retry."""
    site = ParkingSite()
    site.sent.append("a")
    site.read()
    pipeline = site.pipeline
    (each,) = lease(pipeline, 1)
    pipeline.settle(nacked=[Nack(each.lease_id)], now_ns=0)
    assert pipeline.parking.failing(stored_before_ms=1e18) == [b"a"]
    pipeline.retry(each.job, reset_attempts=True)
    pipeline.offer_again(each.job)
    assert pipeline.parking.failing(stored_before_ms=1e18) == []
    (each,) = lease(pipeline, 1)
    pipeline.settle(nacked=[Nack(each.lease_id)], now_ns=0)
    assert pipeline.parking.failing(stored_before_ms=1e18) == [b"a"]


def test_a_failed_job_that_was_copied_waits_for_no_retry_any_more() -> None:
    """Otherwise the queue's figures would not add up until then."""
    site = ParkingSite()
    site.put("a")
    site.read()
    (held,) = lease(site.pipeline, holder=HOLDER)
    nack = Nack(held.lease_id, retry_after_ms=60_000)
    site.pipeline.settle(nacked=[nack], now_ns=1)
    site.park("a")
    site.record_parked()
    site.copy(heard=True)
    figures = site.pipeline.statistics()
    assert (figures.unfinished, figures.retrying, figures.blocked) == (0, 0, 0)


def test_messages_being_copied_are_not_spilled() -> None:
    site = ParkingSite()
    site.pipeline.on_messages([keyed(each, "a") for each in range(4)], next_offset=4)
    assert site.pipeline.parking.park(b"a")
    site.record_parked()
    run = site.pipeline.to_copy(b"a", jobs=32, body_bytes=1 << 20)
    site.pipeline.room(demand=True)
    assert site.pipeline.statistics().spilled
    effects = site.pipeline.copied(run)
    assert [offset for offset, _ in effects.finished] == [job.offset for job in run] == [0, 1]


def _crowded(keys: str, *, done: int) -> ParkingSite:
    """Return a full window with a parked key ``a`` of which *done* messages have finished."""
    site = ParkingSite()
    site.pipeline.change_rules(rules(**{**RULES, "max_jobs_per_key": 4}))
    site.sent += keys

    def read(begin: int, end: int) -> None:
        messages = [site.stored(each) for each in range(begin, end)]
        site.apply_effects(site.pipeline, site.pipeline.on_messages(messages, next_offset=end))

    read(0, 7)
    for offset in range(done):
        (held,) = lease(site.pipeline)
        site.apply_effects(site.pipeline, site.pipeline.settle(acked=[held.lease_id], now_ns=1))
        site.done.add(offset)
        site.refill()
    read(7, len(keys))
    site.park("a")
    site.record_parked()
    return site


@pytest.mark.parametrize(
    ("keys", "done"), [("aaabcdef", 0), ("aaaaaaaabcdef", 4)], ids=["new", "read again"]
)
def test_messages_spilled_while_being_copied_are_copied_again(keys: str, done: int) -> None:
    """P3: it is not in memory any more, and without a new copy its successors would be skipped."""
    site = _crowded(keys, done=done)
    run = site.pipeline.to_copy(b"a", jobs=2, body_bytes=1000)
    assert [job.offset for job in run] == [done, done + 1]
    site.copy(heard=False)
    site.pipeline.room(demand=True)
    site.apply_effects(site.pipeline, site.pipeline.copied(run))
    assert site.pipeline.committable == site.pipeline.jobs.by_key.lowest(b"a") == done + 1
    site.finish()
    assert (site.pipeline.jobs.residency.taken, site.pipeline.jobs.spilled) == (0, 0)


def test_a_change_of_rate_does_not_reset_deliveries() -> None:
    site = parked("a")
    twin = site.twin
    assert twin is not None
    site.redrive("a")
    site.refill()
    (held,) = lease(twin, now_ns=1 * MS)
    twin.settle(nacked=[Nack(held.lease_id, retry_after_ms=1)], now_ns=1 * MS)
    twin.pace(b"a", rate=5)
    assert (twin.parked[b"a"].rate, dict(twin.leases.attempts)) == (5, {0: 1})
    twin.on_time(now_ns=3 * MS)
    (again,) = lease(twin, now_ns=3 * MS)
    assert again.job.attempts == 2


def test_a_stopped_redrive_is_stopping_until_its_client_is_done() -> None:
    site = parked("a")
    twin = site.twin
    assert twin is not None
    site.redrive("a")
    site.refill()
    (held,) = lease(twin, now_ns=1 * MS)
    twin.stop(b"a")
    assert (set(twin.redrives.keys), set(twin.redrives.stopping)) == (set(), {b"a"})
    twin.settle(released=[held.lease_id], now_ns=2 * MS)
    assert not twin.redrives.stopping


def test_successors_of_lost_messages_of_a_parked_key_are_not_repeats() -> None:
    """P3: their copies exist, and new messages have their offsets."""
    site = parked("a", "a", "a")
    twin = site.twin
    assert twin is not None
    twin.redrives.origin_lost(1)
    site.write_record(1)
    site.logs[0].append(parts(site.pipeline.snapshot().cut_at(1)))
    site.sent[1:] = ["a", "a"]
    site.begin()
    site.open_twin()
    site.read()
    site.copy(heard=True)
    site.read_twin()
    assert site.twin is not None
    assert site.twin.jobs.by_key.unfinished(b"a") == 5


async def test_a_stopped_redrive_ends_with_an_answer_that_was_never_written() -> None:
    """Otherwise the next client would get the copy although its key is not redriven."""
    site = parked("a")
    twin = site.twin
    assert twin is not None
    site.redrive("a")
    site.refill()
    held = lease(twin, now_ns=1 * MS)
    twin.stop(b"a")
    make_lane().return_unsent([Batch(twin, held)])
    assert (twin.ready, lease(twin, now_ns=2 * MS), twin.redrives.stopping) == (0, [], set())
    assert twin.jobs.by_key.unfinished(b"a") == 1


async def test_a_parked_key_is_copied_once_an_answer_was_never_written() -> None:
    """No other event in its queue would trigger the copying."""
    site = ParkingSite()
    site.put("a")
    site.read()
    held = lease(site.pipeline)
    site.park("a")
    site.record_parked()
    listener = Listener()
    make_lane(listener=listener).return_unsent([Batch(site.pipeline, held)])
    assert listener.told["parking"] == 1
    assert len(site.pipeline.to_copy(b"a", jobs=9, body_bytes=99)) == 1


def test_finished_messages_count_while_ownership_is_certain() -> None:
    site = parked("a")
    queue, twin = site.pipeline, site.twin
    assert twin is not None
    assert queue.is_owned(1)
    assert twin.is_owned(1)
    queue.doubt()
    assert not queue.is_owned(1)
    assert not twin.is_owned(1)
    queue.trust_until(10)
    assert twin.is_owned(queue.trusted_until_ns - 1)
    assert not twin.is_owned(queue.trusted_until_ns)


def killed_while_a_key_leaves() -> ParkingSite:
    """Return a site where all copies of "a" are handled; only the queue's records show that it
    left.
    """
    site = parked("a", "a")
    site.redrive("a")
    site.record()
    for _ in range(4):
        site.refill()
        site.pull()
        site.settle()
    site.leave(until=0)
    site.begin()
    assert (site.done, site.pipeline.parked) == ({0, 1}, {})
    return site


def test_a_key_that_had_left_when_its_owner_was_killed_is_not_redriven_once_more() -> None:
    site = killed_while_a_key_leaves()
    site.put("a")
    site.read()
    site.park("a")
    site.record_parked()
    twin = site.twin
    assert twin is not None
    assert (set(twin.redrives.keys), twin.jobs.unfinished, dict(twin.leases.attempts)) == (
        set(),
        0,
        {},
    )
    site.copy(heard=True)
    site.read_twin()
    assert twin.jobs.by_key.spilled_offsets(b"a")[:] == array("q", [2])
    site.finish()


def test_no_key_leaves_a_queue_that_is_being_reset() -> None:
    """Listed as parked by the reset, but not redriven any more, it would wait forever."""
    site = parked("a")
    site.redrive("a")
    for _ in range(2):
        site.refill()
        site.pull()
        site.settle()
    site.record()
    site.pipeline.drain()
    moved = moved_to(site.pipeline, 1)
    site.leave(until=2)  # its copies were being checked
    site.logs[0].append(parts(moved))
    site.begin()
    site.open_twin()
    site.read_twin()
    site.leave(until=3)
    assert not site.pipeline.parked


def test_a_key_that_had_left_holds_up_no_commit_of_the_twin() -> None:
    site = killed_while_a_key_leaves()
    site.put("b")
    site.read()
    site.park("b")
    site.record_parked()
    assert site.twin is not None
    assert site.twin.committable == 2
    site.record()
    said = site.logs[1].last()
    assert said is not None
    assert said.snapshot is not None
    assert (said.snapshot.spilled, said.snapshot.parked) == ({}, {})
    site.finish()
