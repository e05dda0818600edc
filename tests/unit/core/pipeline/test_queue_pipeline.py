from __future__ import annotations

from typing import Any

import pytest

from proxy.core.jobs.chains import REACTIVATION_BURST
from proxy.core.keys.ids import Epoch, LeaseId
from proxy.core.keys.order_key import MissingKey
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.lease_book import Holder
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Snapshot
from testkit.messages import keyed, message
from testkit.pipelines import HOLDER, KEYS, MS, Budgets, lease, offsets, pipeline, rules


def retrying(deliveries: int = 2, **others: Any) -> RetryPolicy:
    return RetryPolicy((10, 20), deliveries, **{"on_exhausted": OnExhausted.DEAD_LETTER, **others})


def nacked(of: QueuePipeline, *, now_ns: int = 0, **how: Any) -> QueuePipeline:
    """Lease one job and nack it."""
    (each,) = lease(of, 1, now_ns=now_ns)
    of.settle(nacked=[Nack(each.lease_id, **how)], now_ns=now_ns)
    return of


# ---- reading ------------------------------------------------------------------------------------


def test_a_message_that_is_read_again_is_passed_over() -> None:
    queue = pipeline(messages=[keyed(0, "a"), keyed(1, "b")])
    queue.on_messages([keyed(0, "a"), keyed(1, "b"), keyed(2, "c")], next_offset=3)
    assert offsets(lease(queue)) == [0, 1, 2]


def test_a_gap_at_the_end_of_a_read_moves_the_position() -> None:
    """All messages up to there were filtered by tag at the broker."""
    queue = pipeline()
    queue.on_messages([], next_offset=40)
    assert (queue.position, queue.committable) == (40, 40)


def test_attempts_of_messages_before_the_start_do_not_count() -> None:
    """An administrator moved the group on while its queue had no owner."""
    resume = Snapshot(Epoch(1), 0, 6, (0, 4), {0: 9, 4: 3}, keys=KEYS)
    assert pipeline(epoch=2, start=3, resume=resume).statistics().most_attempts == 3
    assert pipeline(epoch=2, start=6, resume=resume).statistics().most_attempts == 0


def test_a_message_of_another_tag_is_finished_at_once() -> None:
    queue = pipeline(rules(tags=frozenset({"x"})))
    effects = queue.on_messages(
        [keyed(0, "a", tag="y"), keyed(1, "a"), keyed(2, "a", tag="x")], next_offset=3
    )
    assert effects.finished == [(0, Outcome.FILTERED), (1, Outcome.FILTERED)]
    assert (offsets(lease(queue)), queue.committable) == ([2], 2)


@pytest.mark.parametrize(
    ("policy", "handed_out"),
    [
        (MissingKey.BY_QUEUE, [0, 1]),
        (MissingKey.UNORDERED, [0, 1, 2]),
        (MissingKey.DEAD_LETTER, [1]),
    ],
)
def test_messages_without_their_key_follow_the_policy(
    policy: MissingKey, handed_out: list[int]
) -> None:
    queue = pipeline(rules(missing_key=policy))
    effects = queue.on_messages([message(0), keyed(1, "a"), message(2)], next_offset=3)
    assert effects.missing_keys == 2
    assert offsets(lease(queue)) == handed_out


def test_a_message_that_should_have_a_key_is_dead_lettered_before_it_finishes() -> None:
    queue = pipeline(rules("$.id", missing_key=MissingKey.DEAD_LETTER))
    effects = queue.on_messages([message(0, body=b"no json")], next_offset=1)
    (job,) = effects.dead_letters
    why = "no order key at $.id: the body is not JSON, still compressed, or nested too deep"
    assert (job.reason, effects.finished) == (why, [])
    assert (queue.committable, queue.drained(0)) == (0, False)
    assert queue.dead_lettered(job).finished == [(0, Outcome.DEAD_LETTERED)]
    assert (queue.committable, queue.drained(0)) == (1, True)


def test_a_group_without_order_misses_no_keys() -> None:
    queue = pipeline(rules(None, missing_key=MissingKey.DEAD_LETTER))
    effects = queue.on_messages([message(0), message(1)], next_offset=2)
    assert (effects.missing_keys, effects.dead_letters) == (0, [])
    assert offsets(lease(queue)) == [0, 1]


def test_reading_pauses_while_half_the_window_is_full_and_while_draining() -> None:
    queue = pipeline(rules(max_jobs=4), messages=[keyed(0, "a"), keyed(1, "a")])
    assert queue.room() == 0
    assert queue.room(demand=True) == 2, "clients that wait may have the other half"
    (first,) = lease(queue)
    queue.settle(acked=[first.lease_id], now_ns=0)
    assert queue.room() == 1
    queue.drain()
    assert (queue.room(), queue.room(demand=True)) == (0, 0)


def test_a_queue_of_one_chain_is_never_read_ahead_for_want_of_other_keys() -> None:
    queue = pipeline(rules("QID", max_jobs=4), messages=[keyed(0, "a"), keyed(1, "b")])
    assert queue.room(demand=True) == 0


@pytest.mark.parametrize("end", ["drain", "close"])
def test_a_read_that_answers_too_late_changes_nothing(end: str) -> None:
    """The snapshot may be written, the memory freed: the next owner reads those messages."""
    budgets = Budgets()
    queue = pipeline(budgets=budgets)
    getattr(queue, end)()
    effects = queue.on_messages([keyed(0, "a")], next_offset=1)
    assert (queue.position, budgets.memory.used, effects.finished) == (0, 0, [])


# ---- handing out --------------------------------------------------------------------------------


def test_a_batch_holds_distinct_keys_up_to_its_jobs_and_bytes() -> None:
    queue = pipeline(messages=[keyed(n, key) for n, key in enumerate("aabbcd")])
    assert offsets(queue.lease(max_jobs=9, max_bytes=150, now_ns=0, holder=HOLDER)) == [0, 2]
    assert offsets(queue.lease(max_jobs=1, max_bytes=99, now_ns=0, holder=HOLDER)) == [4]
    assert queue.lease(max_jobs=0, max_bytes=99, now_ns=0, holder=HOLDER) == []


def test_a_lease_runs_for_the_visibility_timeout() -> None:
    queue = pipeline(rules(visibility_ns=7), messages=[keyed(0, "a")])
    (each,) = lease(queue, now_ns=100)
    assert (each.deadline_ns, queue.next_due_ns(100)) == (107, 107)


def test_a_job_returned_again_and_again_starves_no_other() -> None:
    queue = pipeline(messages=[keyed(0, "back"), *(keyed(n, f"k{n}") for n in range(1, 4))])
    order = []
    for _ in range(3 * (REACTIVATION_BURST + 1) + 1):
        (each,) = lease(queue, 1)
        order += offsets([each])
        if each.job.offset == 0:
            queue.settle(released=[each.lease_id], now_ns=0)
        else:
            queue.settle(acked=[each.lease_id], now_ns=0)
    assert order == [0, *([0] * REACTIVATION_BURST + [1]), *([0] * REACTIVATION_BURST + [2]),
                     *([0] * REACTIVATION_BURST + [3])]  # fmt: skip


def test_a_waiting_take_over_says_when_it_may_begin() -> None:
    queue = pipeline(hold_until_ns=50, messages=[keyed(0, "a")])
    assert (lease(queue, now_ns=49), queue.next_due_ns(49)) == ([], 50)
    assert (offsets(lease(queue, now_ns=50)), queue.next_due_ns(60)) == ([0], 50 + 5000 * MS)


def test_a_job_held_back_for_less_than_the_take_over_is_due_first() -> None:
    before = Snapshot(Epoch(1), 0, 1, (0,), leases={0: 1})
    queue = pipeline(epoch=2, resume=before, hold_until_ns=5 * MS, messages=[keyed(0, "a")])
    assert queue.next_due_ns(0) == MS


# ---- verdicts -----------------------------------------------------------------------------------


def test_a_nack_waits_its_interval_and_a_wish_of_the_client_goes_before_it() -> None:
    queue = nacked(pipeline(rules(retry=retrying(9)), messages=[keyed(0, "a"), keyed(1, "a")]))
    queue.on_time(now_ns=10 * MS - 1)
    assert lease(queue, now_ns=10 * MS - 1) == []
    queue.on_time(now_ns=10 * MS)
    nacked(queue, now_ns=10 * MS, retry_after_ms=3)
    queue.on_time(now_ns=13 * MS)
    (each,) = lease(queue, now_ns=13 * MS)
    assert (each.job.offset, each.job.attempts, each.job.reason) == (0, 3, "failed by its client")


def test_a_job_remembers_why_and_when_it_failed() -> None:
    queue = pipeline(rules(visibility_ns=5, retry=retrying(9)), messages=[keyed(0, "a")])
    nacked(queue, now_ns=100, retry_after_ms=0, reason="no stock")
    queue.on_time(now_ns=100)
    (each,) = lease(queue, now_ns=200)
    assert each.job.reason == "no stock"
    queue.on_time(now_ns=205)
    job = each.job
    assert (job.reason, job.first_failure_ns, job.last_failure_ns) == ("lease expired", 100, 205)


def test_a_job_that_used_up_its_hand_outs_waits_for_its_copy_to_be_stored() -> None:
    queue = pipeline(rules(retry=retrying(1)), messages=[keyed(0, "a"), keyed(1, "a")])
    (each,) = lease(queue)
    effects = queue.settle(nacked=[Nack(each.lease_id, reason="bad")], now_ns=0)
    assert ([job.offset for job in effects.dead_letters], effects.finished) == ([0], [])
    assert (lease(queue), queue.committable, queue.statistics().blocked) == ([], 0, 1)
    queue.dead_lettered(each.job)
    assert (offsets(lease(queue)), queue.committable) == ([1], 1)


def test_a_copy_is_confirmed_once() -> None:
    queue = pipeline(rules(retry=retrying(1)), messages=[keyed(0, "a")])
    (each,) = lease(queue)
    queue.settle(nacked=[Nack(each.lease_id)], now_ns=0)
    queue.dead_lettered(each.job)
    with pytest.raises(KeyError):
        queue.dead_lettered(each.job)


def test_a_copy_that_is_confirmed_after_the_queue_was_lost_changes_nothing() -> None:
    budgets = Budgets()
    queue = pipeline(rules(retry=retrying(1)), budgets=budgets, messages=[keyed(0, "a")])
    (each,) = lease(queue)
    queue.settle(nacked=[Nack(each.lease_id)], now_ns=0)
    queue.close()
    assert (queue.dead_lettered(each.job).finished, budgets.memory.used) == ([], 0)


def test_a_reject_goes_straight_to_the_policy() -> None:
    queue = pipeline(rules(retry=retrying(9)), messages=[keyed(0, "a")])
    (each,) = lease(queue)
    effects = queue.settle(nacked=[Nack(each.lease_id, reject=True)], now_ns=0)
    assert effects.dead_letters == [each.job]


def test_under_block_not_even_a_reject_gives_a_job_up() -> None:
    queue = pipeline(
        rules(retry=retrying(1, on_exhausted=OnExhausted.BLOCK)), messages=[keyed(0, "a")]
    )
    (each,) = lease(queue)
    effects = queue.settle(nacked=[Nack(each.lease_id, reject=True)], now_ns=0)
    assert (effects.dead_letters, queue.statistics().retrying) == ([], 1)


def test_a_lease_that_expired_just_now_is_fenced() -> None:
    queue = pipeline(rules(visibility_ns=5), messages=[keyed(0, "a")])
    (each,) = lease(queue)
    effects = queue.settle(acked=[each.lease_id], now_ns=5)
    assert (effects.expired, effects.fenced, effects.finished) == ([each], [each.lease_id], [])


def test_of_two_verdicts_on_a_lease_the_first_counts() -> None:
    queue = pipeline(messages=[keyed(0, "a")])
    (each,) = lease(queue)
    effects = queue.settle(
        acked=[each.lease_id, each.lease_id],
        nacked=[Nack(each.lease_id)],
        released=[each.lease_id],
        now_ns=0,
    )
    assert (effects.acked, effects.nacked, effects.released) == ([each], [], [])
    assert effects.fenced == [each.lease_id] * 3


def test_a_finished_job_lets_go_of_its_body() -> None:
    queue = pipeline(messages=[keyed(0, "a")])
    (each,) = lease(queue)
    queue.settle(acked=[each.lease_id], now_ns=0)
    assert each.job.message is None


def test_released_and_unsent_jobs_do_not_count_as_handed_out() -> None:
    queue = pipeline(rules(retry=retrying(1)), messages=[keyed(0, "a")])
    (first,) = lease(queue)
    queue.settle(released=[first.lease_id], now_ns=0)
    (second,) = lease(queue)
    queue.return_unsent([second, first])
    (third,) = lease(queue)
    assert third.job.attempts == 1
    queue.return_unsent([second])
    assert queue.statistics().leased == 1


# ---- verdicts by offset -------------------------------------------------------------------------


def test_verdicts_by_offset_count_on_the_connection_that_holds_the_lease() -> None:
    queue = pipeline(messages=[keyed(n, f"k{n}") for n in range(3)])
    lease(queue, 2)
    lease(queue, 1, holder=Holder(2))
    effects = queue.settle_by_offset(
        success=[0, 2, 7], failed=[1, 2, 0], connection=1, open_connections={1, 2}, now_ns=0
    )
    assert (offsets(effects.acked), offsets(effects.nacked)) == ([0], [1])
    assert sorted(effects.fenced) == [2, 7]
    assert (effects.finished, queue.statistics().retrying) == ([(0, Outcome.OK)], 1)


# ---- extensions ---------------------------------------------------------------------------------


def extensible(**others: Any) -> tuple[QueuePipeline, LeaseId]:
    queue = pipeline(rules(visibility_ns=100 * MS), messages=[keyed(0, "a")], **others)
    (each,) = lease(queue)
    return queue, each.lease_id


def test_an_extension_runs_from_now_and_one_visibility_timeout_at_most() -> None:
    queue, lease_id = extensible()
    assert queue.extend([lease_id], ms=70, now_ns=50 * MS) == []
    assert queue.next_due_ns(0) == 120 * MS
    assert queue.extend([lease_id], ms=5000, now_ns=50 * MS) == []
    assert queue.next_due_ns(0) == 150 * MS


def test_leases_no_longer_held_are_returned() -> None:
    queue, lease_id = extensible()
    assert queue.extend([lease_id, LeaseId(99)], ms=1, now_ns=0) == [99]
    assert queue.extend([lease_id], ms=1, now_ns=100 * MS) == [lease_id]


def test_no_extension_past_the_drain_deadline() -> None:
    queue, lease_id = extensible()
    queue.refuse_extensions()
    assert queue.extend([lease_id], ms=1, now_ns=0) == [lease_id]


def test_no_extension_once_trust_has_lapsed() -> None:
    """The next owner waits only for leases granted while trust held."""
    queue, lease_id = extensible(trusted_until_ns=50 * MS)
    assert queue.extend([lease_id], ms=60, now_ns=50 * MS - 1) == []
    assert queue.extend([lease_id], ms=90, now_ns=50 * MS) == [lease_id]
    queue.trust_until(60 * MS)
    assert queue.extend([lease_id], ms=90, now_ns=50 * MS) == []


# ---- the end of a period ------------------------------------------------------------------------


def test_a_draining_queue_hands_nothing_out_but_hears_verdicts() -> None:
    queue = pipeline(messages=[keyed(0, "a"), keyed(1, "a")])
    (each,) = lease(queue)
    queue.drain()
    assert not queue.drained(0)
    queue.settle(acked=[each.lease_id], now_ns=0)
    assert (lease(queue), queue.committable, queue.drained(0)) == ([], 1, True)


def test_a_queue_is_not_given_back_while_the_owner_before_may_have_live_leases() -> None:
    """A clean end removes the next owner's wait, so a waiting take-over must not end cleanly."""
    queue = pipeline(hold_until_ns=50)
    queue.drain()
    assert (queue.may_unlock(49), queue.drained(49)) == (False, False)
    assert (queue.may_unlock(50), queue.drained(50)) == (True, True)


def test_a_dead_letter_on_its_way_delays_the_hand_over_but_is_no_lease() -> None:
    queue = pipeline(rules(missing_key=MissingKey.DEAD_LETTER), messages=[message(0)])
    assert (queue.may_unlock(0), queue.drained(0)) == (True, False)


def test_the_next_owner_repeats_nothing_and_goes_on_counting() -> None:
    first = pipeline(rules(retry=retrying(9)), messages=[keyed(n, f"k{n}") for n in range(4)])
    leases = lease(first)
    first.settle(
        acked=[leases[0].lease_id, leases[2].lease_id],
        nacked=[Nack(leases[1].lease_id)],
        released=[leases[3].lease_id],
        now_ns=0,
    )
    snapshot = first.snapshot()
    assert snapshot == Snapshot(Epoch(1), 1, 4, (1, 3), {1: 1}, keys=KEYS)
    second = pipeline(
        epoch=2,
        start=snapshot.base,
        resume=snapshot,
        messages=[keyed(n, f"k{n}") for n in range(1, 6)],
    )
    leases = lease(second)
    assert (offsets(leases), [each.job.attempts for each in leases]) == ([3, 1, 4, 5], [1, 2, 1, 1])


def test_an_owner_passes_on_unread_state_unchanged() -> None:
    """Two hand-overs in a row: the second owner had no time to read all that the first had."""
    before = Snapshot(Epoch(1), 1, 9, (1, 4, 7), {4: 2, 7: 3}, keys=KEYS)
    second = pipeline(epoch=2, start=1, resume=before, messages=[keyed(1, "a"), keyed(2, "b")])
    (each,) = lease(second)
    second.settle(acked=[each.lease_id], now_ns=0)
    after = second.snapshot()
    assert after == Snapshot(Epoch(2), 4, 9, (4, 7), {4: 2, 7: 3}, keys=KEYS)
    third = pipeline(resume=after, messages=[keyed(n, "k") for n in range(4, 9)])
    assert (third.statistics().unfinished, lease(third)[0].job.offset) == (2, 4)


def test_an_owner_begins_at_the_base_of_the_record_if_the_stored_offset_is_below_it() -> None:
    """After a lost commit, finished messages stay finished."""
    before = Snapshot(Epoch(1), base=5, read=9, unfinished=(7,), keys=KEYS)
    second = pipeline(epoch=2, start=0, resume=before, messages=[keyed(0, "a"), keyed(7, "b")])
    assert offsets(lease(second)) == [7]
    assert second.snapshot() == Snapshot(Epoch(2), base=7, read=9, unfinished=(7,), keys=KEYS)


def test_a_closed_queue_frees_its_memory_and_delivers_nothing() -> None:
    budgets = Budgets()
    queue = pipeline(budgets=budgets, messages=[keyed(0, "a"), keyed(1, "b"), keyed(2, "c")])
    (each,) = lease(queue, 1)
    queue.close()
    assert (budgets.memory.used, budgets.leases.used, queue.room()) == (0, 0, 0)
    assert lease(queue) == []
    assert queue.settle(acked=[each.lease_id], now_ns=0).fenced == [each.lease_id]
    assert queue.extend([each.lease_id], ms=1, now_ns=0) == [each.lease_id]


def test_its_repr_is_a_status_line() -> None:
    queue = pipeline(epoch=7, messages=[keyed(0, "a"), keyed(1, "a"), keyed(2, "b")])
    lease(queue, 1)
    assert repr(queue) == (
        "<QueuePipeline orders/broker-a_0 epoch=7 ready=1 leased=1 blocked=1 committed=0>"
    )
