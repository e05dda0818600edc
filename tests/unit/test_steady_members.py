from __future__ import annotations

from proxy.core.steady_members import SteadyMembers

SECOND = 1_000_000_000


def test_those_of_the_first_look_count_at_once() -> None:
    members = SteadyMembers(settle_ns=SECOND)
    assert members.counted(["a", "b"], own="a", now_ns=5 * SECOND) == ["a", "b"]
    assert members.settled(now_ns=5 * SECOND)


def test_who_joins_counts_when_it_has_stayed() -> None:
    members = SteadyMembers(settle_ns=SECOND)
    members.counted(["a"], own="a", now_ns=SECOND)
    assert members.counted(["a", "b"], own="a", now_ns=2 * SECOND) == ["a"]
    assert not members.settled(now_ns=2 * SECOND)
    assert members.counted(["a", "b"], own="a", now_ns=3 * SECOND) == ["a", "b"]
    assert members.settled(now_ns=3 * SECOND)


def test_who_leaves_counts_no_more_and_begins_anew() -> None:
    """However often it comes and goes, the others keep what they have."""
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
