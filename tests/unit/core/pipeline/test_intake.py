"""From messages to jobs: keys, filters, room and refills."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.core.jobs.chains import CHAINED, READY, RUNNING
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import Epoch
from proxy.core.keys.order_key import QUEUE_CHAIN, MissingKey
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Filtered, Nack, Outcome, Skip
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Snapshot
from testkit.messages import held_bytes, keyed, message
from testkit.pipelines import KEYS, MS, Budgets
from tests.unit.core.pipeline.components import Components, components

RETRY = RetryPolicy((100,), 9, OnExhausted.BLOCK)


def test_of_each_key_the_first_message_is_ready_and_the_others_wait_in_its_chain() -> None:
    messages = [keyed(0, "a"), keyed(1, "b"), keyed(2, "a")]
    here = components(messages=messages)

    assert [job.state for job in here.jobs.by_key.in_memory(b"a")] == [READY, CHAINED]
    assert here.head("b").state is READY
    assert here.jobs.position == 3
    taken = sum(held_bytes(each, key) for each, key in zip(messages, "aba", strict=True))
    assert here.jobs.window.used_bytes == taken


def test_messages_read_before_are_skipped() -> None:
    here = components(messages=[keyed(0, "a"), keyed(1, "b")])
    effects = here.intake.read([keyed(1, "b"), keyed(2, "c")], next_offset=3)

    assert (here.jobs.unfinished, here.jobs.position, effects.finished) == (3, 3, [])


def test_messages_finished_by_an_earlier_owner_are_not_jobs_and_attempts_continue() -> None:
    resume = Snapshot(Epoch(1), 0, 4, (0, 2), {2: 3}, keys=KEYS)
    here = components(resume=resume, messages=[keyed(n, f"k{n}") for n in range(4)])

    assert here.jobs.unspilled() == [0, 2]
    assert (here.head("k0").attempts, here.head("k2").attempts) == (0, 3)


def test_attempts_are_forgotten_of_messages_that_end_before_they_are_jobs_again() -> None:
    """Of failed ones: 0 has an unwanted tag now, 1 is left out by the broker, 5 was deleted."""
    resume = Snapshot(Epoch(1), 0, 6, (0, 1, 2, 5), {0: 9, 1: 8, 2: 7, 5: 6}, keys=KEYS)
    here = components(resume=resume, tags=frozenset({"x"}))
    here.intake.read([keyed(0, "a", tag="y"), keyed(2, "b", tag="x")], next_offset=3)
    assert here.head("b").attempts == 7

    here.intake.read([], next_offset=9)
    assert here.leases.attempts == {2: 7}


def test_attempts_are_forgotten_of_damaged_messages_that_are_skipped() -> None:
    resume = Snapshot(Epoch(1), 0, 3, (1, 2), {1: 9, 2: 8}, keys=KEYS)
    here = components(resume=resume)
    here.intake.pass_damage(3, audit="a1")

    assert here.leases.attempts == {}


def test_a_message_with_another_tag_is_finished_as_it_is_read() -> None:
    here = components(tags=frozenset({"x"}))
    messages = [keyed(0, "a", tag="y"), keyed(1, "a", tag="x")]
    effects = here.intake.read(messages, next_offset=2)

    assert effects.finished == [(0, Outcome.FILTERED)]
    assert effects.filtered_by == {0: Filtered("tags", 0)}
    assert (here.jobs.committable, here.head("a").offset) == (1, 1)


def test_other_rules_count_from_the_next_message_on() -> None:
    here = components(messages=[keyed(0, "a", tag="y")])
    here.intake.change_rules(components(tags=frozenset({"x"})).wanted)
    effects = here.intake.read([keyed(1, "b", tag="y")], next_offset=2)

    assert (here.jobs.unspilled(), effects.finished) == ([0], [(1, Outcome.FILTERED)])


def test_a_message_without_its_key_waits_behind_all_others_without_one() -> None:
    here = components(missing_key=MissingKey.BY_QUEUE)
    effects = here.intake.read([message(0), message(1)], next_offset=2)

    assert [job.offset for job in here.jobs.by_key.in_memory(QUEUE_CHAIN)] == [0, 1]
    assert (here.jobs.chains.ready, effects.missing_keys) == (1, 2)


def test_a_message_without_its_key_is_ready_at_once_where_it_needs_no_order() -> None:
    here = components(missing_key=MissingKey.UNORDERED)
    effects = here.intake.read([message(0), message(1)], next_offset=2)

    assert [job.key for job in here.jobs.chains.ready_jobs()] == [None, None]
    assert effects.missing_keys == 2


def test_a_message_without_its_key_is_given_up_where_the_policy_says_so() -> None:
    here = components(missing_key=MissingKey.DEAD_LETTER)
    effects = here.intake.read([message(0)], next_offset=1)

    (job,) = effects.dead_letters
    assert (job.state, job.reason) == (RUNNING, "no order key at KEY")
    assert (here.jobs.chains.ready, here.jobs.committable) == (0, 0)
    assert here.exhausted.under_way == {0}


def test_reading_stops_at_the_first_message_that_the_window_has_no_room_for() -> None:
    here = components(max_jobs=2)
    here.intake.read([keyed(n, f"k{n}") for n in range(4)], next_offset=4)

    assert (here.jobs.unfinished, here.jobs.position) == (2, 2)


def test_with_memory_full_a_queue_that_offers_something_takes_in_known_keys_alone() -> None:
    first = keyed(0, "a")
    here = components(budgets=Budgets(memory=Budget(held_bytes(first, "a"))), messages=[first])
    here.intake.read([keyed(1, "a"), keyed(2, "b"), keyed(3, "a")], next_offset=4)

    assert (here.jobs.by_key.backlog(b"a"), here.jobs.by_key.backlog(b"b")) == (2, 0)
    assert (here.jobs.spilled, here.jobs.position) == (1, 2)


def test_messages_without_their_key_are_one_known_key_with_memory_full_too() -> None:
    """Otherwise reading would stop at the second one, and the keys behind it would wait."""
    first = message(0)
    budgets = Budgets(memory=Budget(held_bytes(first, None)))
    here = components(budgets=budgets, messages=[first], missing_key=MissingKey.BY_QUEUE)
    here.intake.read([message(1), message(2), keyed(3, "b")], next_offset=4)

    assert here.jobs.by_key.backlog(QUEUE_CHAIN) == 3
    assert (here.jobs.spilled, here.jobs.position) == (2, 3)


@pytest.mark.parametrize("max_jobs", [1, 2, 5, 8, 64])
@pytest.mark.parametrize("memory_jobs", [1, 4, 7, 1000])
@pytest.mark.parametrize("missing_key", [MissingKey.BY_QUEUE, MissingKey.DEAD_LETTER])
def test_messages_admitted_together_become_the_same_jobs_as_one_by_one(
    max_jobs: int, memory_jobs: int, missing_key: MissingKey
) -> None:
    keys = ["a", "b", "a", "c", "a", None, "a", "d", "b", "a", "a", "e"]
    messages = [message(n, key=key, tag="x") for n, key in enumerate(keys)]
    memory_bytes = memory_jobs * held_bytes(messages[0], "a")

    def read(tags: frozenset[str] | None) -> tuple[object, ...]:
        here = components(
            budgets=Budgets(memory=Budget(memory_bytes)),
            max_jobs=max_jobs,
            missing_key=missing_key,
            tags=tags,
        )
        effects = here.intake.read(messages[:2], next_offset=2)
        assert effects.missing_keys == 0
        effects = here.intake.read(messages[1:], next_offset=len(messages))
        jobs, window = here.jobs, here.jobs.window
        return (
            jobs.position,
            [(job.offset, job.key) for job in jobs.chains.ready_jobs()],
            {key: list(jobs.by_key.spilled_offsets(key)) for key in jobs.chains.keys},
            jobs.unspilled(),
            (window.jobs, window.spilled, window.used_bytes, window.full, window.memory.used),
            (effects.missing_keys, [job.offset for job in effects.dead_letters]),
        )

    # With a filter by tags, each message is looked at alone.
    assert read(None) == read(frozenset({"x"}))


def test_many_ready_jobs_pause_reading_until_few_are_left() -> None:
    intake = components().intake

    rooms = [intake.room(ready=ready, demand=True) > 0 for ready in (2047, 2048, 1025, 1024, 2047)]
    assert rooms == [True, False, False, True, True]


def test_for_a_paused_queue_nothing_is_read_past_the_half_of_its_window() -> None:
    here = components(max_jobs=8, messages=[keyed(n, f"k{n}") for n in range(4)])
    assert here.intake.room(ready=4, demand=True) == 4

    here.pauses.pause(EVERYTHING, PausedKey(0))
    assert here.intake.room(ready=4, demand=True) == 0


def test_it_names_the_resource_that_pauses_reading() -> None:
    budgets = Budgets()
    here = components(max_jobs=2, budgets=budgets, messages=[keyed(0, "a")])
    assert here.intake.paused_by == ""
    here.read(keyed(1, "b"))
    assert here.intake.paused_by == "jobs"
    budgets.memory.take(budgets.memory.limit)
    assert here.intake.paused_by == "memory"


def spilled() -> tuple[Components, Refill]:
    """Return key a at offsets 0 to 3, the last two of which are spilled, and read again."""
    here = components(max_jobs=8, max_jobs_per_key=2, messages=[keyed(n, "a") for n in range(4)])
    here.intake.room(ready=1, demand=True)
    assert here.jobs.spilled == 2
    (first,) = here.lease()
    here.settlement.settle([first.lease_id], (), (), 0)
    (refill,) = here.jobs.residency.take_refills()
    assert refill == Refill(b"a", (2,))
    return here, refill


def test_a_spilled_message_comes_back_behind_the_others_of_its_key() -> None:
    here, refill = spilled()
    effects = here.intake.refilled(refill, [keyed(2, "a")])

    assert effects.finished == []
    assert [job.offset for job in here.jobs.by_key.in_memory(b"a")] == [1, 2]
    assert [job.refilled for job in here.jobs.by_key.in_memory(b"a")] == [False, True]


def test_a_spilled_message_that_is_gone_is_finished_as_deleted() -> None:
    here, refill = spilled()
    effects = here.intake.refilled(refill, [])

    assert (effects.finished, effects.gone) == ([(2, Outcome.DELETED)], {2: b"a"})
    assert here.jobs.by_key.backlog(b"a") == 2


def unloaded() -> tuple[Components, Refill]:
    """Return a job that failed and was unloaded for lack of room; its retry is due."""
    here = components(max_jobs=1, retry=RETRY, messages=[keyed(0, "a")])
    (lease,) = here.lease()
    here.settlement.settle((), [Nack(lease.lease_id)], (), 0)
    here.intake.room(ready=0, demand=True)
    job = lease.job
    assert (job.message, here.jobs.residency.unloaded.has(job)) == (None, True)
    here.settlement.on_time(100 * MS)
    (refill,) = here.jobs.residency.take_refills()
    return here, refill


def test_an_unloaded_job_is_offered_once_its_message_is_back() -> None:
    here, refill = unloaded()
    assert not here.intake.offers
    effects = here.intake.refilled(refill, [keyed(0, "a")])

    assert (effects.finished, here.intake.offers) == ([], True)
    (again,) = here.lease(now_ns=100 * MS)
    assert (again.job.attempts, again.body) == (2, b"xyz")


def test_an_unloaded_job_ends_as_deleted_if_its_message_is_gone() -> None:
    here, refill = unloaded()
    effects = here.intake.refilled(refill, [])

    assert (effects.finished, effects.gone) == ([(0, Outcome.DELETED)], {0: b"a"})
    assert (here.intake.offers, here.jobs.committable) == (False, 1)


@pytest.mark.parametrize("make", [spilled, unloaded])
def test_a_damaged_job_that_an_operator_skips_ends_as_skipped(
    make: Callable[[], tuple[Components, Refill]],
) -> None:
    here, refill = make()
    (offset,), why = refill.offsets, Skip("a-1", refill.key)
    effects = here.intake.refilled(refill, (), skip=why)

    assert effects.finished == [(offset, Outcome.SKIPPED)]
    assert (effects.skips, effects.gone) == ({offset: why}, {})


@pytest.mark.parametrize("key", ["a", None])
def test_a_job_counts_its_message_with_all_that_is_around_it(key: str | None) -> None:
    each = message(7, key=key, body=b"0123456789")
    job = components().intake.job(each, None if key is None else key.encode())

    assert (job.offset, job.body_bytes, job.held_bytes) == (7, 10, held_bytes(each, key))
