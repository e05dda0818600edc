"""Ends of deliveries, by verdict, time or operator, and the fate of their jobs."""

from __future__ import annotations

from unittest.mock import patch

from proxy.core.jobs.chains import CHAINED, FINISHED, READY
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.effects import Effects
from proxy.core.records.paused_key import PausedKey
from testkit.messages import keyed
from testkit.pipelines import HOLDER, MS, offsets
from tests.unit.core.pipeline.components import LEASE_NS, Components, components

TWICE = RetryPolicy((10,), 2, OnExhausted.DEAD_LETTER)


def two_keys() -> Components:
    """Return key a at offsets 0 and 2, key b at 1."""
    return components(retry=TWICE, messages=[keyed(n, "ab"[n % 2]) for n in range(3)])


def run_of(here: Components, jobs: int) -> list[Lease]:
    """Lease the first run."""
    return here.dispatch.lengthen(here.lease(), max_run=jobs, max_jobs=9, max_bytes=1 << 60)


def one_run() -> tuple[Components, list[Lease]]:
    """Return three messages of a key, leased in one run."""
    here = components(retry=TWICE, messages=[keyed(n, "a") for n in range(3)])
    return here, run_of(here, 3)


def settle(
    here: Components,
    *,
    acked: list[Lease] | None = None,
    nacked: list[Lease] | None = None,
    released: list[Lease] | None = None,
    now_ns: int = 0,
) -> Effects:
    return here.settlement.settle(
        [each.lease_id for each in acked or ()],
        [Nack(each.lease_id, reason="no") for each in nacked or ()],
        [each.lease_id for each in released or ()],
        now_ns,
    )


def test_an_ack_finishes_the_job_and_frees_its_successor() -> None:
    here = two_keys()
    first, other = here.lease()
    effects = settle(here, acked=[first])

    assert (effects.acked, effects.finished) == ([first], [(0, Outcome.OK)])
    assert (first.job.state, first.job.message) == (FINISHED, None)
    assert (here.head("a").offset, here.head("a").state) == (2, READY)
    assert list(here.leases) == [other]


def test_a_verdict_on_a_lease_that_is_not_live_is_fenced() -> None:
    here = two_keys()
    first, other = here.lease()
    settle(here, acked=[first])
    effects = here.settlement.settle(
        [first.lease_id, other.lease_id], [Nack(first.lease_id)], [LeaseId(99)], 0
    )

    assert effects.fenced == [first.lease_id, first.lease_id, 99]
    assert (effects.acked, effects.nacked, effects.released) == ([other], [], [])


def test_a_nack_has_the_job_wait_for_its_retry_and_its_key_with_it() -> None:
    here = two_keys()
    first, _ = here.lease()
    effects = settle(here, nacked=[first], now_ns=5 * MS)

    assert (effects.nacked, effects.finished) == ([first], [])
    assert (first.job.reason, here.leases.due_ns(0)) == ("no", 15 * MS)
    assert here.lease() == []
    here.settlement.on_time(15 * MS)
    (again,) = here.lease()
    assert (again.job.offset, again.job.attempts) == (0, 2)


def test_a_job_whose_hand_outs_are_used_up_is_given_up() -> None:
    here = two_keys()
    first, _ = here.lease()
    settle(here, nacked=[first])
    here.settlement.on_time(10 * MS)
    (again,) = here.lease()
    effects = settle(here, nacked=[again])

    assert (effects.dead_letters, effects.finished) == ([first.job], [])
    assert (here.exhausted.under_way, here.leases.waiting) == ({0}, 0)


def test_a_released_message_does_not_count_as_delivered_and_is_offered_at_once() -> None:
    here = two_keys()
    first, _ = here.lease()
    effects = settle(here, released=[first])

    assert (effects.released, first.job.attempts) == ([first], 0)
    assert offsets(here.lease()) == [0]


def test_an_expired_lease_counts_and_its_job_is_offered_at_once() -> None:
    here = two_keys()
    first, other = here.lease()
    effects = here.settlement.on_time(LEASE_NS)

    assert effects.expired == [first, other]
    assert (first.job.attempts, first.job.reason) == (1, "lease expired")
    assert offsets(here.lease(now_ns=LEASE_NS)) == [0, 1]


def test_a_revoked_lease_counts_and_says_that_it_was_revoked() -> None:
    here = two_keys()
    first, _ = here.lease()
    effects = here.settlement.revoke(first.lease_id, now_ns=1)

    assert (effects.revoked, effects.expired) == ([first], [])
    assert (first.job.attempts, first.job.reason) == (1, "lease revoked by an operator")


def test_a_lease_whose_answer_was_never_written_expires_uncounted() -> None:
    here = two_keys()
    first, other = here.lease()
    first.not_sent()
    effects = here.settlement.on_time(LEASE_NS)

    assert (effects.unsent, effects.expired) == ([first], [other])
    assert (first.job.attempts, first.job.reason) == (0, "")
    assert 0 not in here.leases.attempts


def test_a_revoked_lease_ends_with_its_run_as_if_it_had_expired() -> None:
    here, (first, second, third) = one_run()
    effects = here.settlement.revoke(second.lease_id, 1)

    assert effects.revoked == [first, second, third]
    assert [each.job.attempts for each in effects.revoked] == [1, 1, 1]
    assert here.settlement.revoke(second.lease_id, 1).fenced == [second.lease_id]


def test_the_strategy_is_notified_when_no_client_of_the_previous_owner_holds_a_job() -> None:
    here = components(held_back_ns={0: 5, 1: 9}, messages=[keyed(0, "a"), keyed(1, "b")])
    with patch.object(here.exhausted, "held_back_no_more") as told:
        here.settlement.on_time(5)

    told.assert_called_once_with(0)
    assert (here.leases.may_be_out(0), here.leases.may_be_out(1)) == (False, True)


# ---- runs ---------------------------------------------------------------------------------------


def test_in_a_run_an_ack_waits_for_those_ahead() -> None:
    here, (first, second, third) = one_run()

    assert settle(here, acked=[second]).finished == []
    assert len(here.leases) == 3
    effects = settle(here, acked=[first])
    assert effects.finished == [(0, Outcome.OK), (1, Outcome.OK)]
    assert list(here.leases) == [third]


def test_messages_after_the_first_failure_in_a_run_are_returned_unhandled() -> None:
    here, (first, second, third) = one_run()
    effects = settle(here, acked=[first, third], nacked=[second])

    assert effects.finished == [(0, Outcome.OK)]
    assert (effects.nacked, effects.released) == ([second], [third])
    assert (second.job.attempts, third.job.attempts) == (1, 0)
    assert (third.job.state, len(here.leases)) == (CHAINED, 0)


def test_a_run_that_expires_counts_for_all_that_its_client_may_have_handled() -> None:
    here, (first, second, third) = one_run()
    settle(here, released=[third])
    effects = here.settlement.on_time(LEASE_NS)

    assert (effects.expired, effects.released) == ([first, second], [third])
    assert [each.job.attempts for each in (first, second, third)] == [1, 1, 0]
    assert here.leases.attempts == {0: 1, 1: 1}


def test_of_an_answer_that_was_not_written_those_that_are_live_come_back() -> None:
    here, (first, second, third) = one_run()
    settle(here, acked=[first])

    assert here.settlement.return_unsent([first, second, third]) == [second, third]
    assert [each.job.attempts for each in (second, third)] == [0, 0]
    assert (offsets(run_of(here, 3)), here.leases.attempts) == ([1, 2], {})


# ---- verdicts without lease ids -----------------------------------------------------------------


def test_a_verdict_by_offset_counts_for_the_connection_that_holds_the_lease() -> None:
    here = two_keys()
    first, other = here.lease()
    theirs = HOLDER.connection + 1
    effects = here.settlement.settle_by_offset(
        [0], (), connection=theirs, open_connections={HOLDER.connection, theirs}, now_ns=0
    )
    assert (effects.fenced, effects.finished) == ([0], [])

    effects = here.settlement.settle_by_offset(
        [0], [0, 1, 7], connection=HOLDER.connection, open_connections=set(), now_ns=0
    )
    assert (effects.acked, effects.nacked, effects.fenced) == ([first], [other], [7])


# ---- running jobs that no client has ------------------------------------------------------------


def test_a_withdrawn_job_is_neither_offered_nor_retried_nor_set_aside() -> None:
    here = two_keys()
    here.pauses.pause(b"b", PausedKey(0))
    (first,) = here.lease()
    settle(here, nacked=[first])
    paused = here.head("b")
    for job in (first.job, paused):
        here.settlement.withdraw(job)

    here.settlement.on_time(10 * MS)
    assert (here.lease(), here.pauses.has(paused)) == ([], False)


def test_each_end_is_measured_and_the_history_of_a_failed_key_goes_on() -> None:
    here = two_keys()
    first, other = here.lease(now_ns=1)
    settle(here, nacked=[first], acked=[other], now_ns=2_000_001)
    here.settlement.on_time(12 * MS + 1)
    (again,) = here.lease(now_ns=12 * MS + 1)
    settle(here, acked=[again], now_ns=13 * MS)

    measures = here.observed.measures
    assert (measures.attempts.total, sum(measures.attempts.counts)) == (3, 2)
    assert sum(measures.handler.counts) == 3
    assert here.leases.attempts == {}
    assert [event.what for event in here.observed.events.of(b"a")] == [
        "failed",
        "delivered",
        "finished: ok",
    ]
    assert here.observed.events.of(b"b") == []
