"""The order of waiting pulls."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.names import Topic
from proxy.core.group.group_buffer import PullWish
from proxy.core.leases.lease_book import Holder
from proxy.downstream.waiters import Waiters

A, B, C = map(Topic, "abc")


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A waiting pull."""

    wish: PullWish


def waiter(*topics: Topic) -> Waiter:
    """Return a pull for *topics*, or for any topic."""
    return Waiter(PullWish(Holder(1), frozenset(topics) or None, max_jobs=1, max_bytes=1))


def test_the_longest_waiting_pull_for_a_topic_comes_first() -> None:
    waiters = Waiters[Waiter]()
    wants_a, wants_any, wants_both = waiter(A), waiter(), waiter(A, B)
    for each in (wants_a, wants_any, wants_both):
        waiters.add(each)
    assert waiters.first([A]) is wants_a
    assert waiters.first([B]) is wants_any
    assert waiters.first([C]) is wants_any
    waiters.remove(wants_any)
    assert waiters.first([B]) is wants_both
    assert waiters.first([C]) is None
    assert waiters.first([]) is None


def test_a_waiter_leaves_all_its_topics_at_once_and_only_once() -> None:
    waiters = Waiters[Waiter]()
    both = waiter(A, B)
    waiters.add(both)
    assert len(waiters) == 1
    assert waiters.remove(both)
    assert not waiters.remove(both)
    assert len(waiters) == 0
    assert waiters.first([A, B]) is None
    assert not waiters.topics  # a topic without waiting pulls costs nothing


def test_any_is_some_waiter_until_there_is_none() -> None:
    waiters = Waiters[Waiter]()
    only = waiter(C)
    waiters.add(only)
    assert waiters.any() is only
    waiters.remove(only)
    with pytest.raises(StopIteration):
        waiters.any()


@given(
    st.lists(
        st.one_of(
            st.frozensets(st.sampled_from([A, B, C]), max_size=3),  # a pull arrives
            st.sampled_from([A, B, C]),  # messages of a topic are ready: serve the first pull
            st.integers(0, 5),  # a pull is abandoned
        )
    )
)
def test_turns_are_those_of_a_plain_list(steps: list[object]) -> None:
    waiters, naive = Waiters[Waiter](), list[Waiter]()
    for step in steps:
        if isinstance(step, frozenset):
            new = waiter(*step)
            waiters.add(new)
            naive.append(new)
        elif isinstance(step, str):
            expected = next((w for w in naive if (w.wish.topics or {step}) & {step}), None)
            assert waiters.first([Topic(step)]) is expected
            if expected is not None:
                assert waiters.remove(expected)
                naive.remove(expected)
        elif isinstance(step, int) and step < len(naive):
            assert waiters.remove(naive.pop(step))
        assert len(waiters) == len(naive)
