from __future__ import annotations

from proxy.core.ownership.steady_members import SteadyMembers

SECOND = 1_000_000_000


def test_those_of_the_first_look_count_at_once() -> None:
    members = SteadyMembers(settle_ns=SECOND)
    assert members.counted(["a", "b"], own="a", now_ns=5 * SECOND) == ["a", "b"]
    assert members.settled


def test_a_new_member_counts_once_it_has_stayed() -> None:
    members = SteadyMembers(settle_ns=SECOND)
    members.counted(["a"], own="a", now_ns=SECOND)
    assert members.counted(["a", "b"], own="a", now_ns=2 * SECOND) == ["a"]
    assert not members.settled
    assert members.counted(["a", "b"], own="a", now_ns=3 * SECOND) == ["a", "b"]
    assert members.settled


def test_a_departed_member_no_longer_counts_and_starts_over() -> None:
    """However often it joins and leaves, the others keep their queues."""
    members = SteadyMembers(settle_ns=SECOND)
    members.counted(["a", "b", "c"], own="a", now_ns=SECOND)
    for turn in range(2, 40):
        there = ["a", "b", "c"] if turn % 2 else ["a", "b"]
        now_ns = turn * SECOND * 2 // 3
        assert members.counted(there, own="a", now_ns=now_ns) == ["a", "b"]


def test_oneself_always_counts() -> None:
    members = SteadyMembers(settle_ns=SECOND)
    members.counted(["b"], own="a", now_ns=SECOND)
    assert members.counted(["b", "a"], own="a", now_ns=SECOND + 1) == ["b", "a"]


def test_in_a_large_group_those_who_join_one_after_the_other_count_together() -> None:
    members = SteadyMembers(settle_ns=SECOND)
    large = [f"m{number:03}" for number in range(100)]
    members.counted(large, own="m000", now_ns=SECOND)
    for number in range(4):
        large.append(f"n{number}")
        now_ns = 2 * SECOND + number * SECOND // 2
        assert len(members.counted(large, own="m000", now_ns=now_ns)) == 100
    assert len(members.counted(large, own="m000", now_ns=4 * SECOND)) == 100
    counted = members.counted(large, own="m000", now_ns=4 * SECOND + SECOND // 4)
    assert counted[100:] == ["n0", "n1", "n2"], "the last has not stayed for long enough"
    assert not members.settled


def test_a_new_member_of_a_large_group_watches_first() -> None:
    small, large = SteadyMembers(settle_ns=SECOND), SteadyMembers(settle_ns=SECOND)
    small.counted(["a", "b"], own="a", now_ns=SECOND)
    assert not small.watches(SECOND)
    large.counted([f"m{number:03}" for number in range(100)], own="m000", now_ns=SECOND)
    assert large.watches(3 * SECOND - 1)
    assert not large.watches(3 * SECOND)
