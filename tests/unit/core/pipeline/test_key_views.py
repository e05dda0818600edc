"""The view of a key in each of its possible states."""

from __future__ import annotations

from typing import Any

from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.lease_book import Holder
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.key_views import SLICE, KeyState, KeyView, KeyViews, slices
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from testkit.messages import keyed
from testkit.pipelines import MS, lease, pipeline, rules
from tests.unit.core.parking.parked_jobs import parked

HOW = PausedKey(1, "ann", "it floods")


def queue(*keys: str, on: OnExhausted = OnExhausted.BLOCK, **others: Any) -> QueuePipeline:
    """Return a pipeline of one message for each of *keys*, given up after two failures."""
    wanted = rules(retry=RetryPolicy((50,), 2, on), **others)
    return pipeline(wanted, messages=[keyed(at, key) for at, key in enumerate(keys)])


def view(of: QueuePipeline, key: str = "a", *, now_ns: int = 0) -> KeyView:
    return KeyViews(of, now_ns=now_ns, wall_ms=10_000).of(key.encode())


def fail(of: QueuePipeline, *, now_ns: int = 0) -> None:
    nacks = [Nack(each.lease_id, reason="no") for each in lease(of, now_ns=now_ns)]
    of.settle(nacked=nacks, now_ns=now_ns)


def test_a_key_without_messages_and_one_with_some() -> None:
    one = queue("a", "b", "a")
    assert view(one, "c") == KeyView("c", "orders", "broker-a_0", KeyState.NONE, paused=False)
    ready = view(one)
    assert (ready.state, ready.offset, ready.backlog, ready.attempts) == (KeyState.READY, 0, 2, 0)
    assert ready.age_ms is not None
    assert not ready.blocked


def test_a_leased_key_shows_its_holder_the_time_left_and_whether_it_is_overdue() -> None:
    one = queue("a")
    [out] = lease(one)
    ends_ns = out.deadline_ns
    ends_ms = ends_ns // MS
    seen = view(one)
    assert (seen.state, seen.holder, seen.lease) == (KeyState.LEASED, "client-1", out.lease_id)
    assert (seen.lease_ends_ms, seen.overdue, seen.blocked) == (ends_ms, False, False)
    one.extend([out.lease_id], ms=ends_ms, now_ns=2 * MS)
    late = view(one, now_ns=ends_ns + MS)
    assert (late.lease_ends_ms, late.overdue, late.blocked) == (1, True, True)


def test_a_client_without_a_name_is_its_connection() -> None:
    one = queue("a")
    lease(one, holder=Holder(7, ""))
    assert view(one).holder == "connection 7"


def test_a_failed_one_waits_for_its_retry_and_one_given_up_for_its_dead_letter() -> None:
    one = queue("a", on=OnExhausted.DEAD_LETTER)
    fail(one)
    waiting = view(one, now_ns=10 * MS)
    assert (waiting.state, waiting.retry_ms, waiting.blocked) == (KeyState.RETRYING, 40, True)
    assert (waiting.attempts, waiting.last_error) == (1, "no")
    one.on_time(now_ns=50 * MS)
    fail(one, now_ns=50 * MS)
    assert (view(one).state, view(one).blocked) == (KeyState.DEAD_LETTERING, True)


def test_a_paused_key_and_a_paused_queue_show_actor_and_reason() -> None:
    for paused in (b"a", EVERYTHING):
        one = queue("a")
        one.pause(paused, HOW)
        seen = view(one)
        assert (seen.state, seen.paused, seen.by, seen.reason) == (
            KeyState.PAUSED,
            True,
            "ann",
            "it floods",
        )


def test_a_leased_message_of_a_paused_key_is_shown_as_leased() -> None:
    one = queue("a")
    lease(one)
    one.pause(b"a", HOW)
    assert (view(one).state, view(one).paused) == (KeyState.LEASED, True)


def test_a_long_chain_is_blocked_while_its_first_message_is_out_and_then_is_read_again() -> None:
    one = queue(*"a" * 20, max_jobs=4, max_jobs_per_key=2)
    out = lease(one, 1)
    shown = view(one)
    assert (shown.state, shown.backlog, shown.blocked) == (KeyState.LEASED, 20, True)
    while out:
        one.settle(acked=[each.lease_id for each in out], now_ns=0)
        out = lease(one, 1)
    reading = view(one)
    assert (reading.state, reading.backlog, reading.spilled) == (
        KeyState.READING,
        reading.spilled,
        reading.backlog,
    )
    assert reading.spilled > 0
    assert reading.offset == 20 - reading.spilled


def test_a_parked_key_shows_its_copies_until_they_are_redriven() -> None:
    site = parked("a", "a")
    main, twin = site.pipeline, site.twin
    assert twin is not None
    shown = view(main)
    assert (shown.state, shown.copies, shown.backlog) == (KeyState.PARKED, 2, 2)
    assert (shown.by, shown.row()["state"]) == ("failure policy", "parked")
    site.redrive("a")
    assert view(main).state is KeyState.REDRIVEN


def test_keys_are_looked_at_some_at_a_time() -> None:
    keys = [b"%d" % number for number in range(2 * SLICE + 1)]
    cut = list(slices(keys))
    assert [len(some) for some in cut] == [SLICE, SLICE, 1]
    assert [key for some in cut for key in some] == keys
