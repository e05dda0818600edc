"""From ready jobs to leases: order, jobs that stay, and ends by actions."""

from __future__ import annotations

from typing import Any

import orjson

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.chains import CHAINED, REACTIVATION_BURST, RUNNING
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.verdicts import FailedAction, Filtered, Outcome
from proxy.core.records.paused_key import PausedKey
from proxy.core.records.record import Snapshot
from proxy.lane.topic_rules import rules_of
from proxy.settings.groups import TopicSettings
from testkit.messages import keyed, message
from testkit.pipelines import HOLDER, KEYS, MS, offsets
from tests.unit.core.pipeline.components import LEASE_NS, Components, components

ONCE = RetryPolicy((10,), 1, OnExhausted.DEAD_LETTER)


def acting(**action: Any) -> TopicRules:
    """Return the rules of a topic with one *action*, ordered by the message key."""
    given = {"name": "orders", "order_key": "KEY", "actions": [action]}
    return rules_of(TopicSettings.model_validate(given))


def sent(offset: int, key: str, **body: Any) -> StoredMessage:
    return message(offset, key=key, body=orjson.dumps(body))


def ack(here: Components, *offsets: int) -> None:
    leases = [lease for lease in here.leases if lease.job.offset in offsets]
    here.settlement.settle([each.lease_id for each in leases], (), (), 0)


def test_ready_jobs_of_distinct_keys_are_leased_in_order_until_the_deadline() -> None:
    here = components(messages=[keyed(0, "a"), keyed(1, "a"), keyed(2, "b"), keyed(3, "c")])
    leases = here.lease(2, now_ns=7)

    assert offsets(leases) == [0, 2]
    assert [(each.deadline_ns, each.holder) for each in leases] == [(7 + LEASE_NS, HOLDER)] * 2
    assert [each.job.state for each in leases] == [RUNNING] * 2
    assert here.leases.at(0) is leases[0]


def test_the_last_job_may_exceed_the_remaining_bytes_and_none_follows() -> None:
    here = components(messages=[message(n, key=f"k{n}", body=b"x" * 1000) for n in range(3)])

    assert offsets(here.dispatch.lease(9, 1200, 0, HOLDER, 1)) == [0, 1]


def test_successors_go_first_but_not_for_ever() -> None:
    """One key is always busy, and others have not begun."""
    here = components(messages=[*(keyed(n, "a") for n in range(20)), keyed(20, "b")])
    seen = []
    while (latest := offsets(here.lease(1))) != [20]:
        seen += latest
        ack(here, *latest)

    assert seen == list(range(REACTIVATION_BURST + 1))


def test_jobs_offered_again_go_first_but_not_forever() -> None:
    here = components(messages=[keyed(n, f"k{n}") for n in range(2)])
    seen = []
    while (latest := here.lease(1)) and latest[0].job.offset == 0:
        seen += latest
        here.settlement.settle((), (), [latest[0].lease_id], 0)

    assert len(seen) == REACTIVATION_BURST + 1
    assert offsets(latest) == [1]


def test_the_job_of_a_paused_key_is_set_aside_and_others_go_on() -> None:
    here = components(messages=[keyed(0, "a"), keyed(1, "b")])
    here.pauses.pause(b"a", PausedKey(0))

    assert offsets(here.lease()) == [1]
    assert here.pauses.has(here.head("a"))


def test_a_job_that_a_client_of_the_owner_before_may_have_waits_until_then() -> None:
    here = components(held_back_ns={0: 5 * MS}, messages=[keyed(0, "a"), keyed(1, "b")])

    assert offsets(here.lease(now_ns=4 * MS)) == [1]
    assert here.leases.due_ns(0) == 5 * MS
    here.settlement.on_time(5 * MS)
    assert offsets(here.lease(now_ns=5 * MS)) == [0]


def test_a_message_given_up_by_an_earlier_owner_is_given_up_at_its_turn() -> None:
    resume = Snapshot(Epoch(1), 0, 2, (0, 1), {0: 1}, keys=KEYS)
    here = components(retry=ONCE, resume=resume, messages=[keyed(0, "a"), keyed(1, "b")])

    assert offsets(here.lease()) == [1]
    (job,) = here.dispatch.unreported.take().dead_letters
    assert (job.offset, job.reason) == (0, "its deliveries were used up before its owner ended")
    assert here.dispatch.unreported.pending is None


def test_jobs_that_failed_at_an_earlier_owner_come_after_a_new_one_those_tried_least_first() -> (
    None
):
    """In a queue that moves often, the same ones would otherwise come first each time."""
    resume = Snapshot(Epoch(1), 0, 4, tuple(range(4)), {0: 3, 1: 1, 2: 2}, keys=KEYS)
    here = components(resume=resume, messages=[keyed(n, f"k{n}") for n in range(4)])

    assert offsets(here.lease()) == [3, 1, 2, 0]


def test_a_filtered_message_finishes_and_the_next_of_its_key_has_its_turn() -> None:
    wanted = acting(filter={"where": "body.wanted"})
    here = components(wanted, messages=[sent(0, "a", wanted=False), sent(1, "a", wanted=True)])

    assert offsets(here.lease()) == [1]
    effects = here.dispatch.unreported.take()
    assert effects.finished == [(0, Outcome.FILTERED)]
    assert effects.filtered_by == {0: Filtered("action 1", 0)}


def test_a_job_on_which_an_action_fails_has_used_a_hand_out_up_and_waits_for_its_retry() -> None:
    here = components(
        acting(transform={"to": "body.n"}), messages=[sent(0, "a"), sent(1, "b", n=1)]
    )
    (lease,) = here.lease()

    assert (lease.job.offset, lease.body) == (1, b"1")
    (failed,) = here.dispatch.unreported.take().failed_actions
    assert failed == FailedAction(0, 0, b"a", 1, failed.reason)
    assert here.leases.attempts == {0: 1}
    assert here.leases.due_ns(0) is not None


def test_a_pull_ends_when_it_has_looked_at_enough() -> None:
    wanted = acting(filter={"where": "body.wanted"})
    here = components(wanted, messages=[sent(n, f"k{n}", wanted=True) for n in range(3)])
    work = Budget(2)
    here.dispatch.share_work(work)

    assert offsets(here.lease()) == [0, 1]
    work.clear()
    assert offsets(here.lease()) == [2]


def test_runs_grow_in_turn_by_messages_that_never_failed() -> None:
    """Key a at offsets 0, 2, 4, key b at 1, 3, 5; 3 failed under an earlier owner."""
    resume = Snapshot(Epoch(1), 0, 6, tuple(range(6)), {3: 1}, keys=KEYS)
    here = components(resume=resume, messages=[keyed(n, "ab"[n % 2]) for n in range(6)])
    firsts = here.lease()
    leases = here.dispatch.lengthen(firsts, max_run=9, max_jobs=9, max_bytes=1 << 60)

    assert offsets(leases) == [0, 2, 4, 1]
    assert [each.job.offset for each in leases[0].run or ()] == [0, 2, 4]
    assert here.jobs.chains.jobs_of(b"b") == 3
    assert [job.state for job in here.jobs.by_key.in_memory(b"b")] == [RUNNING, CHAINED, CHAINED]


def test_places_that_are_left_go_to_one_run_after_the_other() -> None:
    here = components(messages=[keyed(n, "ab"[n % 2]) for n in range(8)])
    leases = here.dispatch.lengthen(here.lease(), max_run=4, max_jobs=3, max_bytes=1 << 60)

    assert offsets(leases) == [0, 2, 4, 1, 3]


def test_a_job_that_failed_before_goes_alone() -> None:
    resume = Snapshot(Epoch(1), 0, 2, (0, 1), {0: 1}, keys=KEYS)
    here = components(resume=resume, messages=[keyed(0, "a"), keyed(1, "a")])
    firsts = here.lease()
    assert here.dispatch.lengthen(firsts, max_run=9, max_jobs=9, max_bytes=1 << 60) == firsts


def test_where_one_failure_is_the_last_each_message_goes_alone() -> None:
    here = components(retry=ONCE, messages=[keyed(0, "a"), keyed(1, "a")])
    firsts = here.lease()
    assert here.dispatch.lengthen(firsts, max_run=9, max_jobs=9, max_bytes=1 << 60) == firsts


def test_hand_outs_are_measured_and_hot_keys_counted() -> None:
    here = components()
    here.observed.now.set(3)
    here.read(keyed(0, "a"), keyed(1, "b"))
    here.lease(now_ns=1_000_003)

    assert here.observed.measures.queue_wait.total == 2_000_000
    assert here.observed.hot.counts(now_ns=4) == ({b"a": 1, b"b": 1}, 2)
