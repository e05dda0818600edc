from __future__ import annotations

import pytest

from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.names import Group, QueueName, Topic

GROUP = Group("billing")
A, B = (QueueName(Topic("orders"), "broker-a", n) for n in (0, 1))
EXPIRY = 100


def table() -> QueueLocks:
    return QueueLocks(EXPIRY)


def test_a_free_queue_is_granted_and_a_held_one_is_not() -> None:
    locks = table()
    assert locks.lock(GROUP, "one", [A], now_ns=0).queues == {A}
    assert locks.lock(GROUP, "two", [A, B], now_ns=0).queues == {B}
    assert locks.lock(Group("other"), "two", [A], now_ns=0).queues == {A}


def test_a_lock_ends_after_its_expiry_and_not_before() -> None:
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=0)
    locks.lock(GROUP, "one", [A], now_ns=50)
    assert locks.lock(GROUP, "two", [A], now_ns=150).queues == set()
    assert locks.holder(GROUP, A, now_ns=150) == "one"
    assert locks.holder(GROUP, A, now_ns=151) is None
    assert locks.lock(GROUP, "two", [A], now_ns=151).queues == {A}
    assert locks.lock(GROUP, "one", [A], now_ns=151).queues == set()


def test_a_time_that_went_back_does_not_shorten_a_lock() -> None:
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=50)
    locks.lock(GROUP, "one", [A], now_ns=10)
    assert locks.holder(GROUP, A, now_ns=150) == "one"


def test_only_the_holder_unlocks() -> None:
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=0)
    locks.unlock(GROUP, "two", [A, B])
    assert locks.holder(GROUP, A, now_ns=0) == "one"
    locks.unlock(GROUP, "one", [A])
    assert locks.lock(GROUP, "two", [A], now_ns=0).queues == {A}


def test_an_unlock_that_comes_behind_a_newer_lock_frees_nothing() -> None:
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=0, sequence=1)
    locks.lock(GROUP, "one", [A], now_ns=5, sequence=3)
    locks.unlock(GROUP, "one", [A], now_ns=6, sequence=2)
    assert locks.lock(GROUP, "two", [A], now_ns=7, sequence=1).queues == set()
    locks.unlock(GROUP, "one", [A], now_ns=8, sequence=4)
    assert locks.lock(GROUP, "two", [A], now_ns=9, sequence=2).queues == {A}


def test_a_renewal_that_comes_behind_the_unlock_takes_nothing() -> None:
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=0, sequence=1)
    locks.unlock(GROUP, "one", [A], now_ns=1, sequence=3)
    assert locks.lock(GROUP, "one", [A], now_ns=2, sequence=2).queues == set()
    assert locks.holder(GROUP, A, now_ns=2) is None
    assert locks.lock(GROUP, "two", [A], now_ns=3, sequence=1).queues == {A}  # its own sequence
    locks.unlock(GROUP, "two", [A], now_ns=4, sequence=2)
    assert locks.lock(GROUP, "one", [A], now_ns=5, sequence=4).queues == {A}


def test_requests_without_a_number_count_as_they_come() -> None:
    """RocketMQ's clients send no numbers."""
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=0)
    locks.unlock(GROUP, "one", [A])
    assert locks.lock(GROUP, "one", [A], now_ns=1).queues == {A}
    locks.unlock(GROUP, "one", [A])
    assert locks.holder(GROUP, A, now_ns=1) is None


def test_freed_locks_cost_nothing_for_long() -> None:
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=0, sequence=1)
    locks.unlock(GROUP, "one", [A], now_ns=1, sequence=2)
    late = locks.lock(GROUP, "one", [A], now_ns=2, sequence=1)
    assert late.queues == set(), "it was sent before the lock was freed"
    locks.expire(EXPIRY + 2)
    late = locks.lock(GROUP, "one", [A], now_ns=EXPIRY + 3, sequence=1)
    assert late.queues == {A}, "that is forgotten"


def test_a_grant_names_the_save_it_needs_and_so_do_its_renewals() -> None:
    locks = table()
    first = locks.lock(GROUP, "one", [A], now_ns=0)
    assert first.to_save == locks.change == 1
    assert locks.lock(GROUP, "one", [A], now_ns=1).to_save == 1  # the first save may be under way
    assert locks.lock(GROUP, "one", [A, B], now_ns=2).to_save == locks.change == 2
    assert locks.lock(GROUP, "two", [A], now_ns=3).to_save == 0  # nothing granted, nothing to save


def test_loaded_locks_count_as_renewed() -> None:
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=0)
    loaded = QueueLocks.from_table(locks.to_table(), expiry_ns=EXPIRY, now_ns=5000)
    assert loaded.lock(GROUP, "two", [A], now_ns=5100).queues == set()
    renewal = loaded.lock(GROUP, "one", [A], now_ns=5100)
    assert (renewal.queues, renewal.to_save) == ({A}, 0)
    assert loaded.lock(GROUP, "two", [A], now_ns=5201).queues == {A}


def test_ended_locks_cost_nothing() -> None:
    locks = table()
    locks.lock(GROUP, "one", [A], now_ns=0)
    locks.lock(GROUP, "one", [B], now_ns=60)
    locks.expire(101)
    assert locks.to_table() == {"locks": [["billing", "orders", "broker-a", 1, "one"]]}
    assert QueueLocks.from_table({}, expiry_ns=EXPIRY, now_ns=0).to_table() == {"locks": []}


@pytest.mark.parametrize("content", [{"locks": 7}, {"locks": [[1, 2]]}, {"locks": [[1] * 9]}])
def test_a_broken_table_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a table of orderly locks"):
        QueueLocks.from_table(content, expiry_ns=EXPIRY, now_ns=0)


def restarted(locks: QueueLocks, *, now_ns: int) -> QueueLocks:
    """Return the table after a crash of the broker and its restart at *now_ns*."""
    return QueueLocks.from_table(locks.to_table(), expiry_ns=LONG, now_ns=now_ns)


LONG = 10_000_000_000
SECOND = LONG // 10


def test_restarts_in_quick_succession_do_not_keep_a_dead_holders_lock() -> None:
    locks = QueueLocks(LONG)
    locks.lock(GROUP, "dead", [A], now_ns=0)
    now_ns, alive_ns = 100 * SECOND, 0
    while alive_ns <= LONG + SECOND:
        locks = restarted(locks, now_ns=now_ns)
        assert locks.holder(GROUP, A, now_ns=now_ns) == ("dead" if alive_ns <= LONG else None)
        for _ in range(4):  # it crashes every 4 s
            now_ns, alive_ns = now_ns + SECOND, alive_ns + SECOND
            assert locks.ages_to_save(now_ns)
    assert locks.lock(GROUP, "next", [A], now_ns=now_ns).queues == {A}


def test_a_renewal_removes_the_saved_age_before_it_is_answered() -> None:
    locks = QueueLocks(LONG)
    locks.lock(GROUP, "one", [A], now_ns=0)
    locks = restarted(locks, now_ns=0)
    assert locks.ages_to_save(9 * SECOND)
    grant = locks.lock(GROUP, "one", [A], now_ns=9 * SECOND)
    assert grant == ({A}, locks.change)
    assert restarted(locks, now_ns=0).holder(GROUP, A, now_ns=LONG) == "one"


def test_ages_are_saved_once_a_second_and_of_loaded_locks_only() -> None:
    locks = QueueLocks(LONG)
    locks.lock(GROUP, "one", [A], now_ns=0)
    assert not locks.ages_to_save(5 * SECOND)
    locks = restarted(locks, now_ns=0)
    assert not locks.ages_to_save(SECOND // 2)
    assert locks.ages_to_save(SECOND)
    assert not locks.ages_to_save(SECOND + 1)
    locks.lock(GROUP, "one", [A], now_ns=2 * SECOND)
    assert not locks.ages_to_save(3 * SECOND)


def test_a_table_keeps_its_beginning_until_it_is_lost() -> None:
    fresh = QueueLocks.from_table({}, expiry_ns=LONG, now_ns=0, begun_ms=7)
    assert fresh.since_ms == 7
    again = QueueLocks.from_table(fresh.to_table(), expiry_ns=LONG, now_ns=0, begun_ms=9)
    assert again.since_ms == 7
