"""Rate of bulk readers, beside thin clients and alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.bulk.pace import BESIDE_NS, BulkPace
from proxy.core.group.token_bucket import SECOND

MS = 1_000_000
MB = 1_000_000
WANTED = 4 * MB


@dataclass
class Reading:
    """A reader that reads as soon as allowed; reads take no time."""

    pace: BulkPace
    now_ns: int = 5 * SECOND
    read: int = 0

    def go_on(self, ns: int, *, served: bool, overshoot: float = 1.0) -> int:
        """Read for *ns*; return the bytes."""
        before, end_ns = self.read, self.now_ns + ns
        while True:
            served_ns = self.now_ns if served else None
            wait_ns = self.pace.wait_ns(self.now_ns, served_ns=served_ns)
            if self.now_ns + max(wait_ns, MS) > end_ns:
                self.now_ns = end_ns
                return self.read - before
            if wait_ns:
                assert self.pace.take(WANTED, self.now_ns, served_ns=served_ns) == 0
            self.now_ns += max(wait_ns, MS)
            taken = self.pace.take(
                WANTED, self.now_ns, served_ns=self.now_ns if served else served_ns
            )
            assert 0 < taken <= WANTED
            read = int(taken * overshoot)
            self.pace.settle(taken, read)
            self.read += read


def test_without_limits_everything_may_be_read_at_once() -> None:
    pace = BulkPace(None, None)
    for _ in range(3):
        assert pace.wait_ns(0, served_ns=0) == 0
        assert pace.take(WANTED, 0, served_ns=0) == WANTED


@pytest.mark.parametrize("overshoot", [0.3, 1.0, 2.5])
def test_the_rate_holds_over_a_while_whatever_single_reads_bring(overshoot: float) -> None:
    reading = Reading(BulkPace(20 * MB, None))
    assert reading.go_on(10 * SECOND, served=False, overshoot=overshoot) == pytest.approx(
        200 * MB, rel=0.02
    )


def test_a_portion_is_a_twentieth_of_a_second_but_not_tiny() -> None:
    assert BulkPace(20 * MB, None).take(WANTED, 0, served_ns=None) == 1_000_000
    assert BulkPace(1000, None).take(WANTED, 0, served_ns=None) == 65_536
    assert BulkPace(20 * MB, None).take(3, 0, served_ns=None) == 3


def test_after_the_wait_a_reader_gets_a_whole_portion() -> None:
    pace = BulkPace(MB, None)
    assert pace.take(WANTED, 0, served_ns=None) == 65_536
    assert pace.take(WANTED, 0, served_ns=None) == 0
    pace.settle(65_536, 4 * 65_536)  # one large message
    wait_ns = pace.wait_ns(0, served_ns=None)
    assert wait_ns == pytest.approx(3 * 65_536 * 1000, abs=10)
    assert pace.take(WANTED, wait_ns - 1000, served_ns=None) == 0
    assert pace.take(WANTED, wait_ns + 10_000, served_ns=None) == 65_536


def test_idleness_saves_one_portion_at_most() -> None:
    pace = BulkPace(20 * MB, None)
    pace.take(WANTED, 0, served_ns=None)
    hour = 3600 * SECOND
    assert pace.take(WANTED, hour, served_ns=None) == 1_000_000
    assert pace.take(WANTED, hour, served_ns=None) == 0


def test_beside_clients_the_lower_rate_holds_and_a_second_after_the_other_one() -> None:
    reading = Reading(BulkPace(100 * MB, 10 * MB))
    assert reading.go_on(5 * SECOND, served=True) == pytest.approx(50 * MB, rel=0.05)
    assert reading.go_on(5 * SECOND, served=False) == pytest.approx(500 * MB, rel=0.05)
    reading = Reading(BulkPace(10 * MB, 100 * MB))
    assert reading.go_on(5 * SECOND, served=True) == pytest.approx(50 * MB, rel=0.05)

    pace = BulkPace(None, 10 * MB)
    assert pace.take(WANTED, 5 * SECOND, served_ns=5 * SECOND - BESIDE_NS + 1) == 500_000
    assert pace.take(WANTED, 5 * SECOND, served_ns=5 * SECOND) == 0
    assert pace.take(WANTED, 5 * SECOND, served_ns=5 * SECOND - BESIDE_NS) == WANTED


def test_earlier_reads_without_a_limit_are_no_debt() -> None:
    pace = BulkPace(None, 10 * MB)
    assert pace.take(WANTED, SECOND, served_ns=None) == WANTED
    pace.settle(WANTED, WANTED)
    assert pace.take(WANTED, 2 * SECOND, served_ns=2 * SECOND) == 500_000


@given(
    alone=st.none() | st.integers(1024, 10**9),
    beside=st.none() | st.integers(1024, 10**9),
    steps=st.lists(
        st.tuples(st.integers(0, SECOND), st.booleans(), st.integers(0, 10**7)), max_size=60
    ),
)
def test_after_the_wait_a_reader_never_waits_again(
    alone: int | None, beside: int | None, steps: list[tuple[int, bool, int]]
) -> None:
    """Unless another reader was faster: otherwise a reader could wait forever."""
    pace = BulkPace(alone, beside)
    now_ns = 0
    for pause_ns, served, read in steps:
        now_ns += pause_ns
        served_ns = now_ns if served else None
        now_ns += (waited := pace.wait_ns(now_ns, served_ns=served_ns))
        assert waited >= 0
        assert pace.wait_ns(now_ns, served_ns=now_ns if served else None) <= 1
        now_ns += 1
        taken = pace.take(WANTED, now_ns, served_ns=now_ns if served else None)
        assert taken > 0
        pace.settle(taken, read)
