"""Whether an answer waits for further messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.batch_wait import BatchWait

MS = 1_000_000
MANY = 256


def stream(rate_per_s: float, *, wait_ms: int = 1, worth: int = 4, for_ms: int = 500) -> BatchWait:
    """Return the state after messages at a steady rate, the last one at *for_ms*."""
    wait = BatchWait(wait_ms, worth=worth)
    gap_ns = int(1e9 / rate_per_s)
    for at_ns in range(for_ms * MS, 0, -gap_ns)[::-1]:
        wait.came(1, at_ns)
    return wait


@pytest.mark.parametrize(
    ("rate_per_s", "waits"), [(100, False), (3_000, False), (5_000, True), (50_000, True)]
)
def test_an_answer_waits_if_four_messages_are_expected_meanwhile(
    rate_per_s: float, waits: bool
) -> None:
    wait = stream(rate_per_s)
    assert bool(wait.begin(500 * MS, ready=1, room=MANY)) is waits
    assert wait.waits == waits


@pytest.mark.parametrize(
    ("wait_ms", "worth", "waits"), [(0, 4, False), (2, 4, True), (1, 2, True), (1, 4, False)]
)
def test_the_bound_and_the_worth_decide(wait_ms: int, worth: int, waits: bool) -> None:
    wait = stream(3_000, wait_ms=wait_ms, worth=worth)
    assert wait.begin(500 * MS, ready=1, room=MANY) == (wait_ms * MS if waits else 0)


def test_a_backlog_does_not_wait() -> None:
    wait = stream(10_000)
    assert wait.begin(500 * MS, ready=9, room=MANY)
    assert not wait.begin(500 * MS, ready=12, room=MANY)


def test_an_answer_with_little_room_does_not_wait() -> None:
    wait = stream(10_000)
    assert not wait.begin(500 * MS, ready=1, room=1)
    assert not wait.begin(500 * MS, ready=3, room=6)
    assert wait.begin(500 * MS, ready=3, room=7)


def test_messages_that_became_rare_are_not_waited_for() -> None:
    wait = stream(10_000)
    assert wait.begin(510 * MS, ready=1, room=MANY)
    assert not wait.begin(600 * MS, ready=1, room=MANY)
    wait.came(1, 700 * MS)
    assert not wait.is_busy


@given(
    st.lists(st.tuples(st.integers(0, 200 * MS), st.integers(0, 500)), max_size=30),
    st.integers(0, 20),
    st.integers(1, 10),
    st.integers(0, 50),
    st.integers(0, 500),
    st.integers(-5 * MS, 100 * MS),
)
def test_nothing_waits_longer_than_the_bound_or_in_vain(
    events: list[tuple[int, int]], wait_ms: int, worth: int, ready: int, room: int, later_ns: int
) -> None:
    wait = BatchWait(wait_ms, worth=worth)
    now = total = 0
    for gap_ns, messages in events:
        now += gap_ns
        total += messages
        wait.came(messages, now)
    busy = wait.is_busy
    found = wait.begin(now + later_ns, ready=ready, room=room)
    assert found in (0, wait_ms * MS)
    if found:
        assert busy
        assert room >= ready + worth
        assert total * wait_ms >= 50 * max(worth, ready)
