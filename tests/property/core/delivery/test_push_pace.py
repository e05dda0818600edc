from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.delivery.push_pace import SECOND, SLOW_NS, PushPace

MS = 1_000_000
STEPS = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 50), st.sampled_from(["", "slower", "hold"])),
    max_size=40,
)


@given(rate=st.floats(0.1, 1000), steps=STEPS)
def test_no_window_of_time_has_more_requests_than_its_share_and_the_burst(
    rate: float, steps: list[tuple[int, int, str]]
) -> None:
    pace, now, begun = PushPace(rate), 5 * SECOND, []
    for wait_ms, wanted, event in steps:
        now += wait_ms * MS
        if event == "slower":
            pace.slower(now)
        elif event == "hold":
            pace.hold(500, now)
        begun += [now] * pace.take(wanted, now)
    burst = max(1.0, rate / 10)
    for first, start in enumerate(begun):
        for count, end in enumerate(begun[first:], start=1):
            assert count <= rate * (end - start) / SECOND + burst + 0.01


@given(
    rate=st.none() | st.floats(0.1, 1000),
    steps=STEPS,
)
def test_a_wait_is_never_too_long_and_requests_after_it_are_granted(
    rate: float | None, steps: list[tuple[int, int, str]]
) -> None:
    """During the wait nothing is granted; after a few waits a request always is."""
    pace, now = PushPace(rate), 0
    for wait_ms, wanted, event in steps:
        now += wait_ms * MS
        if event == "slower":
            pace.slower(now)
        elif event == "hold":
            pace.hold(500, now)
        pace.take(wanted, now)
        wait_ns = pace.wait_ns(now)
        if wait_ns:
            assert pace.take(1, now) == 0
        else:
            assert pace.take(1, now) == 1
    for _ in range(6):
        now += pace.wait_ns(now)
    assert pace.take(1, now) == 1


@given(takes=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=30))
def test_returned_requests_can_be_taken_again(takes: list[tuple[int, int]]) -> None:
    pace = PushPace(100.0)  # a burst of 10
    pace.take(0, 0)
    spent = 0
    for wanted, back in takes:
        taken = pace.take(wanted, 0)
        back = min(back, taken)
        pace.give_back(back)
        spent += taken - back
        assert spent <= 10
    assert pace.take(10, 0) == 10 - spent


def test_a_receiver_that_asks_for_fewer_gets_a_tenth_for_a_while() -> None:
    """A tenth of the limit, or of the last second's requests; a second call changes nothing."""
    limited, free = PushPace(200.0), PushPace()
    for pace in (limited, free):
        for each in range(100):  # 100 a second, for a second
            assert pace.take(1, each * 10 * MS) == 1
        pace.slower(SECOND)
        pace.slower(SECOND + 1)
        begun = [sum(pace.take(1, SECOND + ms * MS) for ms in range(2, 9000, 20))]
        share = 180 if pace is limited else 90  # in nine seconds
        assert share - 3 <= begun[0] <= share + 3
        later = SECOND + 1 + SLOW_NS
        assert not pace.is_slow(later)
        assert sum(pace.take(1, later + ms * MS) for ms in range(0, 1000, 10)) == 100


def test_a_slow_rate_is_never_nothing() -> None:
    """A receiver that never gets a request could never end the slow-down."""
    pace = PushPace()
    pace.slower(0)

    assert sum(pace.take(1, ms * MS) for ms in range(0, 5001, 10)) == 5


def test_while_held_back_nothing_is_sent() -> None:
    pace = PushPace()
    pace.hold(2000, 0)
    pace.hold(1000, 0)

    assert (pace.take(5, 1999 * MS), pace.wait_ns(1999 * MS), pace.is_slow(0)) == (0, MS, True)
    assert pace.take(5, 2000 * MS) == 5
