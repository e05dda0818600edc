"""If memory runs short, the longest chains of all queues are spilled."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.memory_relief import Relief
from proxy.core.jobs.residency import LONGEST_KEY
from proxy.core.jobs.window import Budget, FlowWindow
from testkit.messages import keyed


def queue_of(memory: Budget, **chains: int) -> Jobs:
    """Return a queue with that many jobs of a hundred bytes for each key, none of them spilled."""
    jobs = Jobs(0, window=FlowWindow(10_000, memory), max_jobs_per_key=64)
    limit = memory.limit
    memory.resize(1 << 40)
    for key, count in chains.items():
        for _ in range(count):
            jobs.admit(Job(jobs.position, key.encode(), held_bytes=100))
    jobs.advance(jobs.position)
    memory.resize(limit)
    return jobs


def held(jobs: Jobs, *keys: str) -> list[int]:
    return [len(list(jobs.by_key.in_memory(key.encode()))) for key in keys]


def test_the_longest_chains_of_all_queues_are_cut_to_one_height() -> None:
    memory = Budget(10_000)
    one, other = queue_of(memory, a=60, b=5), queue_of(memory, c=30)
    memory.relieve()
    assert memory.used <= 5_000 + 8 * 100
    assert held(one, "a", "b") == [22, 5]
    assert held(other, "c") == [22]
    assert (one.spilled, other.spilled) == (38, 8)


def test_each_chain_keeps_its_first_job_however_little_there_is() -> None:
    memory = Budget(1)
    jobs = queue_of(memory, a=3, b=1)
    memory.relieve()
    assert held(jobs, "a", "b") == [1, 1]


def test_while_enough_is_left_nothing_is_cut() -> None:
    memory = Budget(10_000)
    jobs = queue_of(memory, a=75)
    memory.relieve()
    assert jobs.spilled == 0


def test_leased_jobs_and_keys_too_long_for_records_stay() -> None:
    memory = Budget(1_000)
    jobs = queue_of(memory, a=5, **{"x" * (LONGEST_KEY + 1): 5})
    first = jobs.chains.poll()
    assert first is not None
    jobs.chains.follow(first)
    memory.relieve()
    assert held(jobs, "a", "x" * (LONGEST_KEY + 1)) == [2, 5]


def test_all_is_looked_through_once_more_when_much_has_come_since() -> None:
    memory = Budget(1_000)
    jobs = queue_of(memory, **{f"k{n}": 1 for n in range(32)})
    memory.relieve()
    looks = 0

    def tails() -> list[tuple[int, bytes]]:
        nonlocal looks
        looks += 1
        return []

    watched = _Watched(tails)
    memory.relief.holders[watched] = None
    memory.relieve()
    assert looks == 0, "nothing came"
    jobs.advance(jobs.position + 2)
    memory.relieve()
    assert looks == 0, "too little for a look at 32"
    jobs.advance(jobs.position + 1)
    memory.relieve()
    assert looks == 1


class _Watched:
    held_jobs = 0

    def __init__(self, tails) -> None:
        self.tails = tails

    def spill_beyond(self, key: bytes, tail_bytes: int) -> None:
        raise AssertionError((key, tail_bytes))

    def unload(self, wanted_bytes: int) -> int:
        return 0


def test_a_dropped_queue_is_asked_for_nothing() -> None:
    memory = Budget(1_000)
    jobs = queue_of(memory, a=20)
    jobs.close()
    assert not memory.relief.holders
    assert memory.used == 0
    memory.relieve()
    assert held(jobs, "a") == [0]


@pytest.mark.parametrize("jobs", [1, 4])
def test_with_memory_full_only_messages_spilled_at_once_enter_a_queue_with_jobs(
    jobs: int,
) -> None:
    memory = Budget(100 * jobs)
    queue = queue_of(memory, a=jobs)
    assert queue.residency.has_place(b"a", idle=False)
    assert not queue.residency.has_place(b"b", idle=False)
    assert not queue.residency.has_place(None, idle=False)
    assert queue.residency.has_place(b"b", idle=True)
    assert queue.residency.spill(b"a", queue.position)


def test_little_memory_is_used_only_with_demand() -> None:
    memory = Budget(1_600)
    window = FlowWindow(100, memory)
    for _ in range(7):
        window.admit(100)
    assert (window.room(demand=False), window.room(demand=True)) == (1, 9)
    window.admit(100)
    assert (window.room(demand=False), window.room(demand=True)) == (0, 8)
    memory.used += 701
    assert window.room(demand=True) == 0, "no reads of one"
    assert window.short_of_memory
    assert window.few() == 4, "a quarter of it"


class _Full:
    """A queue whose jobs cannot leave memory."""

    def __init__(self) -> None:
        self.asked = self.frees = 0

    @property
    def held_jobs(self) -> int:
        return 1

    def tails(self) -> Iterable[tuple[int, bytes]]:
        return ()

    def spill_beyond(self, key: bytes, tail_bytes: int) -> None:
        raise AssertionError("it has no chain")

    def unload(self, wanted_bytes: int) -> int:
        self.asked += 1
        return self.frees


def full_queues(memory: Budget) -> list[_Full]:
    queues = [_Full() for _ in range(50)]
    for each in queues:
        memory.relief.holders[each] = None
    return queues


def test_queues_that_can_free_nothing_are_asked_once_in_a_round_of_all_queues() -> None:
    """Each queue without room asks for memory: with n queues a round took n² steps."""
    memory = Budget(1_000, used=1_000)
    queues = full_queues(memory)
    for _ in queues:
        memory.relieve()
    assert sum(each.asked for each in queues) <= 2 * len(queues)


def test_a_job_that_may_be_unloaded_is_found_at_the_next_call() -> None:
    memory = Budget(1_000, used=1_000)
    queues = full_queues(memory)
    memory.relieve()
    memory.relieve()
    asked = queues[7].asked
    queues[7].frees = 600
    memory.relief.note_waiting()
    memory.relieve()
    assert queues[7].asked == asked + 1


def test_a_job_that_waits_for_its_retry_is_news_to_the_relief() -> None:
    memory = Budget(1_000)
    jobs = queue_of(memory, a=1)
    full_queues(memory)
    memory.take(900)
    memory.relieve()
    job = next(iter(jobs.chains.heads()))
    assert job.message is None
    job.restore(keyed(0, "a"))
    jobs.residency.unloaded.note_waiting(job, paused=False)
    memory.relieve()
    assert jobs.residency.unloaded


def test_a_queue_that_fails_to_give_memory_back_is_reported_and_the_others_are_asked() -> None:
    """The queue that needs the memory has no part in it."""

    class Faulty(_Full):
        def tails(self) -> Iterable[tuple[int, bytes]]:
            raise ValueError("bad chains")

        def unload(self, wanted_bytes: int) -> int:
            raise ValueError("bad jobs")

    bugs: list[str] = []
    memory = Budget(1_000, used=1_000, relief=Relief(on_bug=lambda bug: bugs.append(str(bug))))
    faulty, sound = Faulty(), _Full()
    memory.relief.holders.update({faulty: None, sound: None})
    memory.relieve()
    assert bugs == ["bad chains", "bad jobs"]
    assert sound.asked == 1
