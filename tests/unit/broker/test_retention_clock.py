"""Messages grow old as time passes, whatever happens to the wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from broker_core.broker.retention_clock import SETTLE_MS, RetentionClock

MS = 1_000_000
HOUR_MS = 3_600_000
JUMP_MS = 300_000
START_MS = 1_800_000_000_000


@dataclass
class Machine:
    """A machine with both clocks; ``boot`` changes when it is booted."""

    now_ns: int = 50 * MS
    wall_ms: int = START_MS
    boot: str = "one"

    def start(self, table: dict[str, Any], *, newest_ms: int = 0) -> RetentionClock:
        return RetentionClock.started(
            table,
            boot=self.boot,
            jump_ms=JUMP_MS,
            newest_ms=newest_ms,
            now_ns=self.now_ns,
            wall_ms=self.wall_ms,
        )

    def passes(self, ms: int) -> None:
        self.now_ns += ms * MS
        self.wall_ms += ms

    def look(self, clock: RetentionClock) -> int:
        return clock.look(now_ns=self.now_ns, wall_ms=self.wall_ms)


def test_it_is_the_wall_clock_while_that_goes_with_time() -> None:
    at = Machine()
    clock = at.start({})
    for _ in range(100):
        at.passes(60_000)
        assert at.look(clock) == at.wall_ms
    assert not clock.jumped


@pytest.mark.parametrize("by_ms", [80 * HOUR_MS, 24 * HOUR_MS, JUMP_MS + 2000])
def test_a_jump_ahead_makes_nothing_old(by_ms: int) -> None:
    at = Machine()
    clock = at.start({})
    at.wall_ms += by_ms
    for minutes in range(1, 200):
        at.passes(60_000)
        assert at.look(clock) == START_MS + minutes * 60_000
        assert clock.jumped
    assert clock.ahead_ms == by_ms


def test_many_small_jumps_count_as_one() -> None:
    at = Machine()
    clock = at.start({})
    for minutes in range(1, 100):
        at.passes(60_000)
        at.wall_ms += JUMP_MS // 2
        assert at.look(clock) <= START_MS + minutes * (60_000 + 1200)
    assert clock.jumped


def test_a_jump_that_is_reverted_needs_no_confirmation() -> None:
    at = Machine()
    clock = at.start({})
    at.wall_ms += 80 * HOUR_MS
    at.look(clock)
    at.passes(HOUR_MS)
    at.wall_ms -= 80 * HOUR_MS
    assert at.look(clock) == at.wall_ms
    assert not clock.jumped


def test_a_confirmed_jump_counts_and_names_its_confirmer() -> None:
    at = Machine()
    clock = at.start({})
    at.wall_ms += 80 * HOUR_MS
    now = {"now_ns": at.now_ns, "wall_ms": at.wall_ms}
    assert clock.confirm(**now, by="ada", reason="the clock was behind") == 80 * HOUR_MS
    assert at.look(clock) == at.wall_ms
    assert not clock.jumped
    again = at.start(clock.to_table())
    assert again.confirmed is not None
    assert (again.confirmed["by"], again.confirmed["reason"]) == ("ada", "the clock was behind")


def test_a_clock_that_is_set_back_makes_messages_younger_at_once() -> None:
    at = Machine()
    clock = at.start({})
    at.wall_ms -= 5 * HOUR_MS
    assert at.look(clock) == at.wall_ms
    assert not clock.jumped
    at.wall_ms += 5 * HOUR_MS
    assert at.look(clock) == at.wall_ms


@pytest.mark.parametrize("boot", ["one", "two"])
def test_a_jump_during_a_restart_makes_nothing_old(boot: str) -> None:
    at = Machine()
    table = at.start({}).to_table()
    at.passes(10_000)
    at.boot = boot
    at.wall_ms += 80 * HOUR_MS
    clock = at.start(table)
    assert clock.jumped
    assert at.look(clock) <= START_MS + 10_000


def test_a_jump_before_a_restart_is_still_known_after_it() -> None:
    at = Machine()
    clock = at.start({})
    at.wall_ms += 80 * HOUR_MS
    at.look(clock)
    for _ in range(3):
        at.passes(60_000)
        clock = at.start(clock.to_table())
        at.look(clock)
    assert clock.jumped
    assert clock.unknown_since_ns is None


def test_time_off_counts_at_once_if_the_machine_was_on() -> None:
    at = Machine()
    table = at.start({}).to_table()
    at.passes(60 * HOUR_MS)
    clock = at.start(table)
    assert at.look(clock) == at.wall_ms
    assert not clock.jumped


def test_a_weekend_off_counts_once_the_clock_has_settled() -> None:
    at = Machine()
    table = at.start({}).to_table()
    at.boot, at.now_ns = "two", 7 * MS
    at.wall_ms += 60 * HOUR_MS
    clock = at.start(table)
    at.passes(SETTLE_MS - 1000)
    assert at.look(clock) < START_MS + 2 * HOUR_MS
    at.passes(2000)
    assert at.look(clock) == at.wall_ms
    assert not clock.jumped


def test_without_a_table_the_newest_message_shows_the_time() -> None:
    at = Machine()
    clock = at.start({}, newest_ms=START_MS - 80 * HOUR_MS)
    assert clock.jumped
    assert at.look(clock) == START_MS - 80 * HOUR_MS
    assert not at.start({}, newest_ms=START_MS - 1000).jumped


@pytest.mark.parametrize("table", [{"steady_ms": "x"}, {"at_ns": 1}, {"steady_ms": 1, "at_ns": 1}])
def test_a_broken_table_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a table of the retention clock"):
        Machine().start(table)
