"""Pause, resume, skip and retry of single keys in a queue's pipeline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.jobs.chains import Job
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack, Outcome, Skip
from proxy.core.ownership.recording import Recording
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.errors import WrongState
from testkit.messages import keyed
from testkit.pipelines import MS, lease, offsets, pipeline, rules
from tests.unit.core.records.ownership_records import write

WHY = Skip("audit-1", b"a")
HOW = PausedKey(1, "ann", "it floods")
RETRY = RetryPolicy((50,), 16, OnExhausted.BLOCK)


def two_keys(**others: object) -> QueuePipeline:
    """Return key a at offsets 0, 2, 4, key b at 1, 3."""
    wanted = rules(retry=RETRY, **others)
    return pipeline(wanted, messages=[keyed(n, "ab"[n % 2]) for n in range(5)])


def head(queue: QueuePipeline, key: str = "a") -> Job:
    found = queue.head(key.encode())
    assert found is not None
    return found


def test_nothing_of_a_paused_key_is_handed_out_and_its_order_is_kept() -> None:
    queue = two_keys()
    assert queue.pause(b"a", HOW)
    assert not queue.pause(b"a", HOW)
    assert offsets(lease(queue)) == [1]
    assert queue.ready == 0
    queue.on_messages([keyed(5, "a")], next_offset=6)
    assert lease(queue) == []
    assert queue.resume(b"a") == HOW
    queue.resumed(b"a")
    seen = []
    while leases := [each for each in lease(queue) if each.job.key == b"a"]:
        seen += offsets(leases)
        queue.settle(acked=[each.lease_id for each in leases], now_ns=0)
    assert seen == [0, 2, 4, 5]
    assert queue.resume(b"a") is None


def test_clients_may_finish_their_messages_of_a_paused_key() -> None:
    queue = two_keys()
    first, _ = lease(queue)
    queue.pause(b"a", HOW)
    effects = queue.settle(acked=[first.lease_id], now_ns=0)
    assert effects.finished == [(0, Outcome.OK)]
    assert lease(queue) == []


def test_a_failed_message_of_a_paused_key_waits_for_its_resume() -> None:
    queue = two_keys()
    first, _ = lease(queue)
    queue.pause(b"a", HOW)
    queue.settle(nacked=[Nack(first.lease_id)], now_ns=0)
    queue.on_time(now_ns=60 * MS)
    assert lease(queue, now_ns=60 * MS) == []
    queue.resume(b"a")
    queue.resumed(b"a")
    (again,) = lease(queue, now_ns=60 * MS)
    assert (again.job.offset, again.job.attempts) == (0, 2)


def test_a_key_is_paused_before_it_has_messages() -> None:
    queue = pipeline()
    queue.pause(b"a", HOW)
    queue.on_messages([keyed(0, "a"), keyed(1, "b")], next_offset=2)
    assert offsets(lease(queue)) == [1]


def test_a_paused_queue_delivers_nothing_and_reads_only_into_free_room() -> None:
    queue = two_keys(max_jobs=10)
    queue.pause(EVERYTHING, HOW)
    assert (lease(queue), queue.ready) == ([], 0)
    assert queue.room(demand=True) == queue.room() <= 5
    queue.resume(EVERYTHING)
    queue.resumed(EVERYTHING)
    assert offsets(lease(queue)) == [0, 1]


def test_pauses_are_in_the_records_of_every_owner() -> None:
    queue = two_keys()
    records = Recording(queue, None)
    write(records, 0)
    queue.pause(b"a", HOW)
    queue.pause(EVERYTHING, HOW)
    (delta,) = write(records, 1)
    assert delta.paused == {b"a": HOW, None: HOW}  # type: ignore[union-attr]
    queue.resume(EVERYTHING)
    (delta,) = write(records, 2)
    assert delta.paused == {None: None}  # type: ignore[union-attr]
    successor = pipeline(
        epoch=2, resume=queue.snapshot(), messages=[keyed(n, "ab"[n % 2]) for n in range(5)]
    )
    assert offsets(lease(successor)) == [1]


def test_a_skipped_message_is_finished_and_its_key_goes_on() -> None:
    queue = two_keys()
    effects = queue.skip(head(queue), WHY)
    assert effects.finished == [(0, Outcome.SKIPPED)]
    assert offsets(lease(queue)) == [2, 1]
    assert queue.committable == 1


def test_a_message_that_failed_or_is_paused_may_be_skipped() -> None:
    queue = two_keys()
    first, second = lease(queue)
    queue.settle(nacked=[Nack(first.lease_id)], now_ns=0)
    queue.skip(head(queue), WHY)
    assert queue.next_due_ns(0) == second.deadline_ns, "nothing is left of its retry"
    assert 0 not in queue.leases.attempts
    queue.pause(b"a", HOW)
    assert lease(queue) == []
    queue.skip(head(queue), WHY)
    queue.resume(b"a")
    queue.resumed(b"a")
    assert offsets(lease(queue)) == [4]


def test_a_leased_message_is_not_skipped() -> None:
    queue = two_keys()
    first, _ = lease(queue)
    with pytest.raises(WrongState, match=r"message 0 of key 'a' is leased to client client-1 "):
        queue.skip(first.job, WHY)
    resume = replace(queue.snapshot(), leases={0: 5})
    queue = pipeline(resume=resume, now_ns=0, messages=[keyed(0, "a")])
    with pytest.raises(WrongState, match="may be held by a client of the previous owner"):
        queue.skip(head(queue), WHY)


def test_a_retry_comes_at_once_if_it_is_asked_for() -> None:
    queue = two_keys()
    first, _ = lease(queue)
    queue.settle(nacked=[Nack(first.lease_id, retry_after_ms=10_000)], now_ns=0)
    assert queue.retry(first.job, reset_attempts=False) == 1
    queue.offer_again(first.job)
    (again,) = lease(queue)
    assert (again.job.offset, again.job.attempts) == (0, 2)
    queue.settle(nacked=[Nack(again.lease_id)], now_ns=0)
    assert queue.retry(again.job, reset_attempts=True) == 2
    queue.offer_again(again.job)
    (third,) = lease(queue)
    assert third.job.attempts == 1


def test_a_message_that_waits_for_no_retry_cannot_be_hastened() -> None:
    queue = two_keys()
    with pytest.raises(WrongState, match="message 0 of key 'a' does not wait for a retry: it is"):
        queue.retry(head(queue), reset_attempts=False)
    assert queue.retry(head(queue), reset_attempts=True) == 0
    queue.offer_again(head(queue))
    assert sorted(offsets(lease(queue))) == [0, 1]


def test_a_key_without_messages_has_no_head() -> None:
    assert two_keys().head(b"c") is None


def test_two_retries_at_once_offer_a_message_once() -> None:
    """Each waits for a record between its two steps."""
    queue = two_keys()
    job = head(queue)
    queue.retry(job, reset_attempts=True)
    with pytest.raises(WrongState, match="message 0 of key 'a' is being retried by another"):
        queue.retry(job, reset_attempts=True)
    with pytest.raises(WrongState, match="being retried"):
        queue.skip(job, WHY)
    queue.offer_again(job)
    assert sorted(offsets(lease(queue))) == [0, 1]
    assert lease(queue) == []
