from __future__ import annotations

from typing import Any

import pytest

from proxy.core.jobs.chains import SEVERAL_CONNECTIONS, Job
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.retry_policy import RetryPolicy
from proxy.core.leases.failures import Failures
from proxy.core.leases.lease_book import Holder, Lease, LeaseBook, Plain
from tests.support.allocations import allocated_by

A, B = Holder(1, "a"), Holder(2, "b")


def book(leases_of_group: Budget | None = None, **others: Any) -> LeaseBook:
    failures = Failures(RetryPolicy(), {})
    return LeaseBook(leases_of_group or Budget(100), Budget(0), failures, **others)


def granted(held: LeaseBook, offset: int, *, deadline_ns: int = 10, holder: Holder = A) -> Lease:
    return held.grant(Job(offset, b"k"), holder=holder, deadline_ns=deadline_ns)


def test_a_hand_out_is_a_lease_with_an_id_of_its_own_and_counts_as_an_attempt() -> None:
    held = book()
    first, second = granted(held, 4), granted(held, 5)
    assert first.lease_id != second.lease_id
    assert (held.live(first.lease_id), held.at(5)) == (first, second)
    assert (first.job.attempts, len(held), held.leases_of_group.used) == (1, 2, 2)


def test_a_lease_ends_once() -> None:
    held = book()
    lease = granted(held, 4)
    assert held.end(lease) == [lease]
    assert (held.live(lease.lease_id), held.at(4), len(held)) == (None, None, 0)
    assert held.leases_of_group.used == 0
    with pytest.raises(KeyError):
        held.end(lease)


def test_leases_expire_at_their_deadline_in_its_order() -> None:
    held = book()
    late, early = granted(held, 1, deadline_ns=20), granted(held, 2, deadline_ns=10)
    assert held.expired(9) == []
    assert held.expired(10) == [[early]]
    assert held.expired(30) == [[late]]
    assert (len(held), held.leases_of_group.used) == (0, 0)


def test_an_extended_lease_expires_at_its_new_deadline_alone() -> None:
    held = book()
    lease = granted(held, 1, deadline_ns=10)
    held.extend(lease, 15)
    assert held.expired(14) == []
    assert held.expired(15) == [[lease]]


def test_an_extension_never_shortens_a_lease() -> None:
    held = book()
    lease = granted(held, 1, deadline_ns=10)
    held.extend(lease, 5)
    assert (lease.deadline_ns, held.expired(9)) == (10, [])


def test_an_ended_lease_does_not_expire() -> None:
    held = book()
    held.end(granted(held, 1, deadline_ns=10))
    assert held.next_due_ns() is None
    assert held.expired(10) == []


def test_a_retry_is_due_when_its_time_has_come_in_order_of_time() -> None:
    held = book()
    late, early = Job(1, b"a"), Job(2, b"b")
    held.retry_at(late, 20)
    held.retry_at(early, 10)
    assert (held.waiting, held.take_due(9)) == (2, [])
    assert (held.take_due(20), held.waiting) == ([(early, 10), (late, 20)], 0)


def test_the_next_due_time_is_the_earliest_deadline_or_retry() -> None:
    held = book()
    assert held.next_due_ns() is None
    held.retry_at(Job(1, None), 30)
    assert held.next_due_ns() == 30
    lease = granted(held, 2, deadline_ns=20)
    assert held.next_due_ns() == 20
    held.extend(lease, 25)
    assert held.next_due_ns() == 25
    held.end(lease)
    assert held.next_due_ns() == 30


def test_it_is_quiet_until_the_earliest_deadline_or_retry() -> None:
    held = book()
    start_ns = held.quiet_until_ns
    granted(held, 1, deadline_ns=20)
    held.retry_at(Job(2, b"k"), 15)
    held.retry_at(Job(3, b"l"), 30)
    assert held.quiet_until_ns == 15
    assert (held.expired(15), len(held.take_due(15)), held.quiet_until_ns) == ([], 1, 20)
    assert (len(held.expired(20)), held.take_due(20), held.quiet_until_ns) == (1, [], 30)
    held.clear()
    assert (held.quiet_until_ns, held.take_due(40)) == (start_ns, [])


def test_a_job_remembers_whether_one_connection_had_all_its_leases() -> None:
    held = book()
    lease = granted(held, 1, holder=A)
    held.grant(held.end(lease)[0].job, holder=A, deadline_ns=20)
    assert lease.job.sole_connection == A.connection
    held.grant(lease.job, holder=B, deadline_ns=20)
    assert lease.job.sole_connection == SEVERAL_CONNECTIONS


def test_a_dropped_queue_gives_back_its_leases_and_no_one_elses() -> None:
    leases_of_group = Budget(100)
    dropped, other = book(leases_of_group), book(leases_of_group)
    lease = granted(dropped, 1)
    granted(other, 1)
    dropped.clear()
    assert (leases_of_group.used, len(dropped), dropped.live(lease.lease_id)) == (1, 0, None)
    assert dropped.at(1) is None


def test_ids_are_not_used_again_within_a_period() -> None:
    held = book()
    first = granted(held, 1)
    held.end(first)
    assert granted(held, 1).lease_id > first.lease_id > LeaseId(0)


def test_a_lease_that_lives_long_costs_no_memory_for_those_that_ended() -> None:
    held = book()
    stuck = granted(held, 0, deadline_ns=5)

    def pass_by() -> None:
        for offset in range(1, 20_000):
            lease = granted(held, offset, deadline_ns=10 + offset)
            held.extend(lease, 11 + offset)
            held.end(lease)

    assert allocated_by(pass_by) < 500_000
    assert held.expired(5) == [[stuck]]


# ---- verdicts without a lease id ----------------------------------------------------------------


def leased_to(*holders: Holder) -> Lease:
    held, job = book(), Job(1, b"k")
    for holder in holders:
        lease = held.grant(job, holder=holder, deadline_ns=10)
        held.end(lease)
    return lease


@pytest.mark.parametrize(
    ("holders", "connection", "open_connections", "counts"),
    [
        pytest.param([A], 1, {1}, True, id="the holder itself"),
        pytest.param([A, B], 2, {1, 2}, True, id="the holder, after another had it"),
        pytest.param([A], 2, {1, 2}, False, id="another client, the holder still there"),
        pytest.param([A], 2, {2}, True, id="the holder came back on a new connection"),
        pytest.param([A, B], 1, {1}, False, id="a former holder, the present one gone"),
        pytest.param([A, B], 3, {3}, False, id="anyone, when two connections had it"),
        pytest.param([A, B, A], 3, {3}, False, id="anyone, when it went to and fro"),
    ],
)
def test_connections_that_may_settle_by_offset(
    holders: list[Holder], connection: int, open_connections: set[int], counts: bool
) -> None:
    assert leased_to(*holders).may_be_settled_on(connection, open_connections) is counts


def test_a_job_that_a_client_of_an_owner_before_may_have_is_held_back_until_then() -> None:
    held = book(held_back_ns={7: 30})

    assert (held.may_be_out(7), held.may_be_out(8)) == (True, False)
    assert (held.next_due_ns(), held.end_ns) == (30, 30)
    assert [offset for _, offset in held.held_back.up_to(30)] == [7]
    assert (held.may_be_out(7), held.next_due_ns(), held.end_ns) == (False, None, 0)


def test_leases_across_a_hand_over_are_listed_in_ms_rounded_up() -> None:
    held = book(held_back_ns={7: 3_000_000})
    granted(held, 1, deadline_ns=2_000_001)

    assert held.times_left_ms(1_000_000, with_live=False) == {7: 2}
    assert held.times_left_ms(1_000_000, with_live=True) == {7: 2, 1: 2}
    assert held.times_left_ms(3_000_000, with_live=True) == {}


def test_leases_that_are_not_extended_are_returned() -> None:
    held = book()
    alive, over = granted(held, 1, deadline_ns=10), granted(held, 2, deadline_ns=5)

    ids = [alive.lease_id, over.lease_id, LeaseId(99)]
    assert held.extend_all(ids, 20, now_ns=5) == [over.lease_id, LeaseId(99)]
    assert (alive.deadline_ns, over.deadline_ns) == (20, 5)


def test_ids_begin_where_the_period_says() -> None:
    assert granted(book(first_id=500), 1).lease_id == 500


def test_handled_leases_end_up_to_the_first_that_has_to_be_judged() -> None:
    held = book()
    first, last = granted(held, 1), granted(held, 2)
    ids = iter([first.lease_id, LeaseId(99), last.lease_id])

    assert held.end_handled(ids) == ([first], 99)
    assert (list(held), held.leases_of_group.used) == ([last], 1)
    assert held.end_handled(ids) == ([last], None)
    assert (len(held), held.at(2), held.leases_of_group.used) == (0, None, 0)


def test_of_a_run_only_its_first_lease_ends_as_handled_by_itself() -> None:
    held = book()
    first = granted(held, 1)
    second = held.follow(first, Job(2, b"k"))
    third = held.follow(second, Job(3, b"k"))

    assert held.end_handled(iter([second.lease_id])) == ([], second.lease_id)
    assert held.end_handled(iter([first.lease_id])) == ([first], None)
    assert list(second.run or ()) == [second, third]
    assert list(held.judge(third, Plain.ACK)) == []
    assert held.end_handled(iter([second.lease_id])) == ([], second.lease_id), "the third waits"


def test_a_body_that_actions_made_counts_until_its_lease_ends() -> None:
    held = book()
    lease = held.grant(Job(1, b"k"), A, 10, b"12345")
    assert held.memory.used == 5
    held.end_handled(iter([lease.lease_id]))
    assert held.memory.used == 0
