"""Jumps of the two clocks are distinguished."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ownership.clock_jumps import ClockJump, ClockJumps, JumpKind

S = 1_000_000_000
LONGEST_NS = 5 * S


def looked(*looks: tuple[float, float]) -> list[ClockJump]:
    """Return the jumps found by checks at seconds of the monotonic and the wall clock."""
    jumps = ClockJumps(LONGEST_NS)
    found = [
        jump
        for now_s, wall_s in looks
        for jump in jumps.look(now_ns=int(now_s * S), wall_ms=int(wall_s * 1000))
    ]
    assert found == list(jumps.seen)
    return found


def test_the_first_look_says_nothing() -> None:
    assert looked((9e9, 1.0)) == []


def test_a_pause_of_the_process() -> None:
    """Both clocks advance meanwhile."""
    (jump,) = looked((1, 101), (7.5, 107.5), (8, 108))
    assert jump == ClockJump(JumpKind.STOOD_STILL, int(7.5 * S), 6500)
    assert looked((1, 101), (6, 106)) == [], "not longer than that"


def test_a_wall_clock_that_is_set() -> None:
    (ahead, back) = looked((1, 101), (2, 3702), (3, 103), (4, 104))
    assert (ahead.kind, ahead.by_ms) == (JumpKind.WALL_CLOCK, 3_600_000)
    assert (back.kind, back.by_ms) == (JumpKind.WALL_CLOCK, -3_600_000)


def test_both_at_once() -> None:
    assert [jump.kind for jump in looked((1, 101), (11, 50))] == [
        *(JumpKind.STOOD_STILL, JumpKind.WALL_CLOCK)
    ]


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(-0.99, 0.99)), max_size=40))
def test_clocks_that_are_kept_right_never_jump(steps: list[tuple[float, float]]) -> None:
    looks = [(0.0, 1000.0)]
    for step_s, slewed_s in steps:
        looks.append((looks[-1][0] + step_s, looks[-1][1] + step_s + slewed_s))
    assert looked(*looks) == []


def test_a_jump_ahead_makes_nothing_older_until_it_is_reverted() -> None:
    jumps = ClockJumps(7_000_000_000)
    jumps.look(now_ns=0, wall_ms=1_000_000)
    jumps.look(now_ns=0, wall_ms=1_000_000 + 80 * 3_600_000)
    assert jumps.steady_ms(1_000_000 + 80 * 3_600_000) == 1_000_000
    jumps.look(now_ns=0, wall_ms=1_000_000)
    assert jumps.steady_ms(1_000_000) == 1_000_000


def test_a_clock_that_is_set_back_is_believed() -> None:
    jumps = ClockJumps(7_000_000_000)
    jumps.look(now_ns=0, wall_ms=1_000_000_000)
    jumps.look(now_ns=0, wall_ms=1_000_000)
    assert jumps.steady_ms(1_000_000) == 1_000_000
