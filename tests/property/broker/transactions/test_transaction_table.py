"""The table of transactions against a naive one, over any history, restarts and clocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.check_rules import CheckRules
from broker_core.broker.transactions.table import CheckAction, Decision, Half, TransactionTable

RULES = CheckRules(timeout_ms=60, interval_ms=100, max_checks=3)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("prepare"), st.sampled_from([None, None, 0, 500]), st.integers(-90, 90)),
        st.tuples(st.just("end"), st.integers(0, 30), st.sampled_from(list(Decision)[:2])),
        st.tuples(st.just("fail"), st.integers(0, 30), st.sampled_from(list(Decision)[:2])),
        st.tuples(st.just("check"), st.integers(-150, 300), st.just(0)),
        st.tuples(st.just("save"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 30), st.just(0)),
    ),
    max_size=60,
)


@dataclass
class Queues:
    """The stored messages; ``log`` has both queues in the order of the log."""

    halves: list[Half] = field(default_factory=list)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    log: list[tuple[str, int]] = field(default_factory=list)

    def half(self, half: Half) -> None:
        if self.halves:  # store times never decrease
            half = half._replace(store_ms=max(half.store_ms, self.halves[-1].store_ms))
        self.log.append(("half", len(self.halves)))
        self.halves.append(half)

    def decision(self, number: int, decision: Decision) -> None:
        self.log.append(("decision", len(self.decisions)))
        self.decisions.append((number, decision))

    def open(self) -> dict[int, Half]:
        ended = {number for number, _ in self.decisions}
        return {half.number: half for half in self.halves if half.number not in ended}

    def read(self, table: TransactionTable) -> None:
        for kind, offset in self.log:
            if kind == "half" and offset >= table.half_end:
                table.add_half(self.halves[offset])
            elif kind == "decision" and offset >= table.record_end:
                table.add_decision(offset, *self.decisions[offset])


def half_at(queues: Queues, now_ms: int, *, born_ms: int, immunity_ms: int | None) -> Half:
    offset = len(queues.halves)
    return Half(
        offset=offset,
        place=1000 * len(queues.log),
        number=offset,
        checks=0,
        born_ms=born_ms,
        store_ms=now_ms,
        immunity_ms=immunity_ms,
    )


def do_check(queues: Queues, table: TransactionTable, now_ms: int) -> None:
    """Do one check as the broker does; forbidden actions fail here."""
    for number, act in table.due(now_ms):
        newest = table.newest(number)
        assert newest is not None
        first = queues.halves[number]
        age_ms = now_ms - min(first.born_ms, first.store_ms)
        wait_ms = RULES.timeout_ms if first.immunity_ms is None else first.immunity_ms
        if act is CheckAction.GIVE_UP:
            assert newest.checks == RULES.max_checks
            table.begin(number, Decision.GIVE_UP)
            queues.decision(number, Decision.GIVE_UP)
            continue
        if act is CheckAction.CHECK:
            assert age_ms >= wait_ms or now_ms < newest.store_ms  # or the clock was set back
            assert newest.checks < RULES.max_checks
        else:
            assert now_ms - newest.store_ms >= RULES.interval_ms
        queues.half(
            newest._replace(
                offset=len(queues.halves),
                place=1000 * len(queues.log),
                store_ms=now_ms,
                checks=newest.checks + (act is CheckAction.CHECK),
            )
        )


@given(steps)
def test_the_table_is_the_sum_of_both_queues_whatever_happens(
    script: list[tuple[str, int, int]],
) -> None:
    queues, table = Queues(), TransactionTable(RULES)
    saved = [(0, 0)]
    now_ms = 1000
    for verb, one, two in script:
        if verb == "prepare":
            queues.half(half_at(queues, now_ms, born_ms=now_ms + two, immunity_ms=one))
        elif verb in ("end", "fail"):
            queues.read(table)
            if not queues.halves:
                continue
            number = queues.halves[one % len(queues.halves)].number
            if table.newest(number) is None:
                continue  # ended: the first decision counts
            table.begin(number, two)
            assert table.newest(number) is None
            assert table.decision(number) is two
            if verb == "end":
                queues.decision(number, two)
            else:
                table.cancel(number)
        elif verb == "check":
            now_ms += one
            queues.read(table)
            do_check(queues, table, now_ms)
        elif verb == "save":
            queues.read(table)
            saved.append(table.progress())
        else:  # the last save may not have reached the disk
            half_offset, record_offset = saved[max(0, len(saved) - 1 - one % 3)]
            table = TransactionTable(RULES, half_end=half_offset, record_end=record_offset)
        queues.read(table)
        expected = queues.open()
        assert len(table) == len(expected)
        assert {number: table.newest(number) for number in expected} == expected
        oldest = min((half.place for half in expected.values()), default=None)
        assert table.oldest_place() == oldest
        half_offset, record_offset = table.progress()
        assert half_offset <= min((half.offset for half in expected.values()), default=10**9)
        assert saved[-1][0] <= half_offset <= len(queues.halves)
        assert record_offset <= len(queues.decisions)
        counts = [number for number, _ in queues.decisions]
        assert len(counts) == len(set(counts))  # decided once


@given(st.integers(1, 40), st.integers(1, 5))
def test_whatever_stays_open_is_given_up_or_stays_young(transactions: int, rounds: int) -> None:
    """A restart reads messages of two checks, not all that were ever stored."""
    queues, table = Queues(), TransactionTable(RULES)
    now_ms = 1000
    for n in range(transactions):
        immunity_ms = 10**9 if n % 7 == 0 else None
        queues.half(half_at(queues, now_ms, born_ms=now_ms, immunity_ms=immunity_ms))
    for _ in range(RULES.max_checks + rounds):
        now_ms += RULES.interval_ms
        queues.read(table)
        before = len(queues.halves)
        do_check(queues, table, now_ms)
    queues.read(table)
    assert table.progress()[0] >= before
    immune = [n for n in range(transactions) if n % 7 == 0]
    assert sorted(queues.open()) == immune
    assert all(half.checks == 0 for half in queues.open().values())


def test_decisions_of_long_ago_are_forgotten_and_newer_ones_known() -> None:
    queues, table = Queues(), TransactionTable(RULES)
    for number in range(10_002):
        queues.half(half_at(queues, 1000, born_ms=1000, immunity_ms=None))
        queues.decision(number, Decision.COMMIT)
    queues.read(table)
    assert (table.decision(1), table.decision(2)) == (None, Decision.COMMIT)
    assert table.progress() == (10_002, 10_002)
