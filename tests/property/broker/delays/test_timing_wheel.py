"""The timing wheel against a sorted list."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_core.broker.delays.timing_wheel import TimingWheel

START_MS = 1_790_000_000_000
#: Near and far: within each wheel's buckets, and beyond.
DELAYS = st.one_of(
    st.integers(-5, 5), st.integers(0, 300), st.integers(0, 40_000), st.integers(0, 10**8)
)


class Wheel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.wheel = TimingWheel()
        self.now_ms = START_MS
        self.naive: list[tuple[int, int]] = []  # in the order added
        self.number = 0

    @rule(delay=DELAYS, count=st.integers(1, 4))
    def add(self, delay: int, count: int) -> None:
        for _ in range(count):
            self.wheel.add(self.now_ms + delay, self.number)
            self.naive.append((self.now_ms + delay, self.number))
            self.number += 1

    @rule(ms=st.one_of(st.integers(-10_000, 10_000), st.integers(0, 10**8)))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule(limit=st.integers(1, 5), back=st.booleans())
    def take(self, limit: int, back: bool) -> None:
        assert not self.wheel.turn(self.now_ms)
        taken = self.wheel.take(self.now_ms, limit)
        due = sorted((pair for pair in self.naive if pair[0] <= self.now_ms), key=_due)
        assert taken == due[:limit]
        if back:
            for due_ms in {due_ms for due_ms, _ in taken}:
                self.wheel.add_first(due_ms, [n for due, n in taken if due == due_ms])
        else:
            self.naive = [pair for pair in self.naive if pair not in taken]

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.naive:
            due_ms, number = data.draw(st.sampled_from(self.naive))
            assert not self.wheel.remove(due_ms + 1, number)
            assert self.wheel.remove(due_ms, number)
            assert not self.wheel.remove(due_ms, number)
            self.naive.remove((due_ms, number))

    @rule(data=st.data())
    def remove_all(self, data: st.DataObject) -> None:
        if self.naive:
            those = data.draw(st.lists(st.sampled_from(self.naive), unique=True))
            wrong = [(due_ms + 1, number) for due_ms, number in self.naive if number % 2]
            assert self.wheel.remove_all(wrong) == []
            assert sorted(self.wheel.remove_all(those)) == sorted(those)
            assert self.wheel.remove_all(those) == []
            self.naive = [pair for pair in self.naive if pair not in those]

    @rule(data=st.data())
    def look_at(self, data: st.DataObject) -> None:
        if self.naive:
            due_ms, _ = data.draw(st.sampled_from(self.naive))
            numbers = [number for due, number in self.naive if due == due_ms]
            assert sorted(self.wheel.numbers_at(due_ms)) == numbers

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.wheel) == len(self.naive)
        assert sorted(chain.from_iterable(self.wheel.portions())) == sorted(self.naive)

    @invariant()
    def says_when_to_look(self) -> None:
        """A caller that only looks at the announced times misses nothing."""
        next_ms = self.wheel.next_ms()
        if self.naive:
            assert next_ms is not None
            assert next_ms <= min(self.naive)[0]


TestWheel = Wheel.TestCase


@given(dues=st.lists(st.integers(0, 3_000_000), min_size=1, max_size=40))
def test_a_caller_that_sleeps_until_the_next_time_is_never_early_and_never_late(
    dues: list[int],
) -> None:
    wheel = TimingWheel()
    for number, due in enumerate(dues):
        wheel.add(START_MS + due, number)
    now_ms, seen, looks = START_MS, [], 0
    while (next_ms := wheel.next_ms()) is not None:
        now_ms = max(now_ms, next_ms)
        assert not wheel.turn(now_ms)
        for due_ms, number in wheel.take(now_ms, 100):
            assert due_ms == START_MS + dues[number] == max(now_ms, due_ms)
            seen.append(number)
        looks += 1
        assert looks < 10 * len(dues) + 10
    assert sorted(seen) == list(range(len(dues)))


def test_a_large_bucket_is_brought_near_in_portions_and_in_order() -> None:
    wheel = TimingWheel()
    due_ms = START_MS + 3_600_000
    for number in range(50_000):
        wheel.add(due_ms, number)
    portions = 1
    while wheel.turn(due_ms):
        wheel.add(due_ms, 50_000 + portions)  # added meanwhile, so it follows
        portions += 1
    assert portions > 3
    taken = wheel.take(due_ms, 100_000)
    assert [number for _, number in taken] == sorted(number for _, number in taken)
    assert len(taken) == 50_000 + portions - 1


def _due(pair: tuple[int, int]) -> int:
    return pair[0]
