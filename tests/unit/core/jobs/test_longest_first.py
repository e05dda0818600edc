from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from proxy.core.jobs.longest_first import LongestFirst

MANY = 1_000_000


def calls_of(act: Callable[[], object]) -> int:
    """Return the number of functions that *act* calls, those of the interpreter included."""
    calls = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


@pytest.fixture(scope="module")
def million() -> LongestFirst[int]:
    """A million keys, most with few jobs and some with many."""
    index: LongestFirst[int] = LongestFirst()
    for member in range(MANY):
        index.put(member, 2 + (member % 7 if member % 1000 else member // 1000))
    return index


def test_a_decision_among_a_million_keys_is_as_short_as_among_few(
    million: LongestFirst[int],
) -> None:
    few: LongestFirst[int] = LongestFirst()
    for member in range(20):
        few.put(member, 2 + member % 7)

    def decide(index: LongestFirst[int]) -> None:
        member = index.pop()
        assert member is not None
        index.put(member, 5)
        index.put(member, 6)
        index.remove(member)

    assert calls_of(lambda: decide(million)) <= calls_of(lambda: decide(few)) + 20


def test_the_longest_leave_first(million: LongestFirst[int]) -> None:
    assert (len(million), million.longest) > (MANY - 10, 990)
    lengths = []
    for _ in range(50):
        lengths.append(million.longest)
        million.pop()
    assert lengths == sorted(lengths, reverse=True)


def test_a_single_job_has_no_rank() -> None:
    index: LongestFirst[str] = LongestFirst()
    index.put("a", 1)
    index.put("b", 2)
    index.put("b", 1)
    assert (len(index), index.longest, index.pop()) == (0, 0, None)
