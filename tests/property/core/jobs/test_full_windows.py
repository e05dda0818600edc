"""A full window of one queue: it never exceeds its limit, and no key waits for a stuck one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.jobs.chains import Job
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.spilled_chains import packed
from proxy.core.jobs.window import Budget, FlowWindow
from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Snapshot


@dataclass
class Site:
    """A queue of messages, each represented by its key; clients never finish stuck keys."""

    log: list[int]
    stuck: set[int]
    window: int
    batch: int
    refills_at_once: int
    finishes_at_once: int
    hand_out: HandOut
    resume: Snapshot | None = None
    done: list[int] = field(default_factory=list)
    leased: list[Job] = field(default_factory=list)
    reading_again: list[Refill] = field(default_factory=list)

    def __post_init__(self) -> None:
        window = FlowWindow(self.window, Budget(1 << 30))
        self.jobs = Jobs(0, window=window, max_jobs_per_key=4, resume=self.resume)
        self.jobs.hand_out_by(self.hand_out)
        self._wants()

    def job(self, offset: int) -> Job:
        return Job(offset, b"%d" % self.log[offset], held_bytes=1)

    def step(self) -> bool:
        """Read, deliver, finish and refill as far as possible; return False if nothing moved."""
        moved = self._read() + self._hand_out() + self._finish() + self._read_again()
        assert self.jobs.residency.taken <= self.window
        return moved > 0

    def _read(self) -> int:
        position = self.jobs.position
        room = min(self.jobs.residency.room(demand=True), self.batch, len(self.log) - position)
        for offset in range(position, position + room):
            if not self.jobs.residency.spill(b"%d" % self.log[offset], offset):
                self.jobs.admit(self.job(offset))
            assert self.jobs.residency.taken <= self.window
        return room

    def _hand_out(self) -> int:
        before = len(self.leased)
        while (job := self.jobs.chains.poll()) is not None:
            self.leased.append(job)
        return len(self.leased) - before

    def _finish(self) -> int:
        due = [job for job in self.leased if self.log[job.offset] not in self.stuck]
        for job in due[: self.finishes_at_once]:
            self.leased.remove(job)
            self.done.append(job.offset)
            self.jobs.finish(job)
            self._wants()
        return len(due)

    def _read_again(self) -> int:
        now, self.reading_again = (
            self.reading_again[: self.refills_at_once],
            self.reading_again[self.refills_at_once :],
        )
        for refill in now:
            assert self.jobs.refilled(refill, [self.job(offset) for offset in refill.offsets])
        self._wants()
        return len(now)

    def _wants(self) -> None:
        self.reading_again += self.jobs.residency.take_refills()
        assert self.jobs.residency.taken <= self.window


ODDS = {
    "batch": st.integers(1, 64),
    "refills_at_once": st.integers(1, 4),
    "finishes_at_once": st.integers(1, 6),
    "hand_out": st.sampled_from(HandOut),
}


@settings(deadline=None)
@given(
    log=st.binary(min_size=40, max_size=200).map(lambda each: [byte % 12 for byte in each]),
    stuck=st.sets(st.integers(0, 11), max_size=5),
    window=st.integers(12, 40),
    **ODDS,
)
def test_no_key_waits_for_stuck_ones_and_the_window_holds(
    log: list[int], stuck: set[int], window: int, **odds: Any
) -> None:
    site = Site(log, stuck, window, **odds)
    while site.step():
        pass
    assert sorted(site.done) == [n for n, key in enumerate(log) if key not in stuck]
    for key in set(log):
        of_key = [offset for offset in site.done if log[offset] == key]
        assert of_key == sorted(of_key)
    assert len(site.leased) == len(stuck & set(log)), "of a stuck key one is out"


@settings(deadline=None)
@given(keys=st.integers(30, 60), each=st.integers(1, 6), stuck=st.integers(0, 20), **ODDS)
def test_more_keys_than_places_come_one_after_another(
    keys: int, each: int, stuck: int, **odds: Any
) -> None:
    """The window has 24 places; stuck keys take one each, the others pass through the rest."""
    site = Site([key for _ in range(each) for key in range(keys)], set(range(stuck)), 24, **odds)
    while site.step():
        pass
    assert len(site.done) == (keys - stuck) * each


@settings(deadline=None)
@given(
    chains=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    stuck=st.integers(0, 11),
    **ODDS,
)
def test_an_owner_with_more_spilled_keys_than_places_serves_all(
    chains: list[int], stuck: int, **odds: Any
) -> None:
    """The previous owner had a larger window; this one has 12 places."""
    log = [key for key, jobs in enumerate(chains) for _ in range(jobs)]
    offsets = [packed(n for n, key in enumerate(log) if key == each) for each in range(len(chains))]
    spilled = {b"%d" % key: of_key for key, of_key in enumerate(offsets)}
    resume = Snapshot(Epoch(1), 0, len(log), (), spilled=spilled)
    site = Site(log, set(range(stuck)), 12, **odds, resume=resume)
    site.jobs.advance(len(log))
    while site.step():
        pass
    assert sorted(site.done) == [n for n, key in enumerate(log) if key >= stuck]


@given(
    max_jobs=st.integers(1, 5_000),
    chains=st.integers(1, 6_000),
    least=st.integers(1, 1_000),
    jobs=st.integers(0, 100),
    body_bytes=st.integers(0, 1 << 20),
    limit=st.integers(1, 1 << 28),
)
def test_no_share_is_above_the_largest_whatever_the_memory(
    max_jobs: int, chains: int, least: int, jobs: int, body_bytes: int, limit: int
) -> None:
    window = FlowWindow(max_jobs, Budget(limit))
    for _ in range(jobs):
        window.admit(body_bytes)

    share = window.share(chains, most=window.most_of_a_key(chains, least=least))
    assert 1 <= share <= window.largest_share(chains, least=least)
