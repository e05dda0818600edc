"""Operator actions on the first message of a key, and refusals."""

from __future__ import annotations

import pytest

from proxy.core.jobs.chains import READY
from proxy.core.jobs.spilled_chains import packed
from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack, Outcome, Skip
from proxy.core.pipeline.effects import Effects
from proxy.core.records.record import Snapshot
from proxy.errors import WrongState
from testkit.messages import keyed
from testkit.pipelines import KEYS, MS, offsets
from tests.unit.core.pipeline.components import Components, components

WHY = Skip("audit-1", b"a")
RETRY = RetryPolicy((100,), 9, OnExhausted.DEAD_LETTER)


def one_key() -> Components:
    """Return key a at offsets 0 and 1."""
    return components(retry=RETRY, messages=[keyed(0, "a"), keyed(1, "a")])


def failed(*, reject: bool = False) -> Components:
    """Return the same after a client failed on the first message."""
    here = one_key()
    (lease,) = here.lease()
    here.settlement.settle((), [Nack(lease.lease_id, reject=reject)], (), 0)
    return here


def test_a_skipped_message_ends_and_its_key_goes_on() -> None:
    here = failed()
    effects = here.operator.skip(here.head("a"), WHY)

    assert (effects.finished, effects.skips) == ([(0, Outcome.SKIPPED)], {0: WHY})
    assert (here.head("a").offset, here.head("a").state) == (1, READY)
    assert (here.leases.waiting, here.leases.attempts) == (0, {})


def test_a_ready_message_may_be_skipped_out_of_its_turn() -> None:
    here = one_key()
    here.operator.skip(here.head("a"), WHY)

    assert offsets(here.lease()) == [1]


def test_a_leased_message_is_refused_and_its_client_named() -> None:
    here = one_key()
    (lease,) = here.lease()

    with pytest.raises(WrongState, match=rf"leased to client client-1 \(lease {lease.lease_id}\)"):
        here.operator.skip(lease.job, WHY)
    with pytest.raises(WrongState, match="wait for its verdict, or revoke the lease"):
        here.operator.retry(lease.job, reset_attempts=True)


def test_a_message_that_a_client_of_the_previous_owner_may_hold_is_refused() -> None:
    here = components(held_back_ns={0: 5}, messages=[keyed(0, "a")])

    with pytest.raises(WrongState, match="a client of the previous owner"):
        here.operator.skip(here.head("a"), WHY)


def test_a_message_being_dead_lettered_is_refused() -> None:
    here = failed(reject=True)

    with pytest.raises(WrongState, match="being written to the dead letters"):
        here.operator.skip(here.head("a"), WHY)


def test_a_retry_takes_the_job_out_of_its_wait_until_it_is_offered_again() -> None:
    here = failed()
    job = here.head("a")

    assert here.operator.retry(job, reset_attempts=False) == 1
    assert (here.operator.has_taken(job), here.leases.due_ns(0)) == (True, None)
    here.settlement.on_time(100 * MS)
    assert here.lease() == []
    with pytest.raises(WrongState, match="retried by another operator"):
        here.operator.skip(job, WHY)

    here.operator.offer_again(job)
    (again,) = here.lease()
    assert (again.job.offset, again.job.attempts) == (0, 2)
    assert not here.operator.has_taken(job)


def test_a_retry_may_forget_the_hand_outs_so_far() -> None:
    here = failed()
    job = here.head("a")

    assert here.operator.retry(job, reset_attempts=True) == 1
    assert (job.attempts, here.leases.attempts) == (0, {0: 0})
    here.operator.count_attempts(job, 1)
    assert (job.attempts, here.leases.attempts) == (1, {0: 1})


def test_a_message_that_waits_for_no_retry_cannot_be_hastened_but_may_be_reset() -> None:
    here = one_key()

    with pytest.raises(WrongState, match="does not wait for a retry"):
        here.operator.retry(here.head("a"), reset_attempts=False)
    assert here.operator.retry(here.head("a"), reset_attempts=True) == 0


def test_a_job_that_ended_meanwhile_is_not_offered_again() -> None:
    here = failed()
    job = here.head("a")
    here.operator.retry(job, reset_attempts=False)
    here.settlement.finish(job, Outcome.SKIPPED, Effects())
    here.operator.offer_again(job)

    assert not here.leases.offered
    assert offsets(here.lease()) == [1]


def test_a_message_outside_memory_may_be_skipped() -> None:
    spilled = {b"a": packed((1, 2))}
    resume = Snapshot(Epoch(1), 0, 9, (0,), {1: 3}, spilled=spilled, keys=KEYS)
    here, effects = components(resume=resume), Effects()
    here.operator.skip_stored(WHY, effects)

    assert (effects.finished, effects.skips) == ([(1, Outcome.SKIPPED)], {1: WHY})
    assert (here.jobs.by_key.first_stored(b"a"), here.leases.attempts) == (2, {})


def test_a_message_being_read_again_is_not_a_head_and_an_empty_key_has_none() -> None:
    here = components(max_jobs=2, max_jobs_per_key=1, messages=[keyed(0, "a"), keyed(1, "a")])
    assert here.intake.room(ready=1, demand=True) == 1
    (lease,) = here.lease()
    here.settlement.settle([lease.lease_id], (), (), 0)

    assert here.operator.head(b"b") is None
    with pytest.raises(WrongState, match="being read again"):
        here.operator.head(b"a")
