"""The memory of a port: who has to give way when it is full."""

from __future__ import annotations

from broker_core.port_memory import SMALL_BYTES, PortMemory

KB = 4096


class Holder:
    """A connection that buffers *buffered_kb*."""

    def __init__(self, memory: PortMemory[Holder], address: str, buffered_kb: int) -> None:
        self.address = address
        self.buffered_bytes = buffered_kb * KB
        self.is_dropped = False
        self._memory = memory
        memory.buffers(self, self.buffered_bytes)

    def drop(self) -> None:
        self.is_dropped = True
        self.buffered_bytes = 0
        self._memory.buffers(self, 0)


def test_the_largest_connection_of_the_address_with_the_most_bytes_is_dropped() -> None:
    memory = PortMemory[Holder](100 * KB)
    honest = Holder(memory, "10.0.0.1", 40)
    strangers = [Holder(memory, "10.0.0.2", size) for size in (10, 30, 20)]
    assert memory.buffered_bytes == 100 * KB
    last = Holder(memory, "10.0.0.3", 10)
    assert [each.is_dropped for each in strangers] == [False, True, False]
    assert not honest.is_dropped
    assert not last.is_dropped
    assert (memory.buffered_bytes, memory.dropped) == (80 * KB, 1)


def test_a_connection_that_asks_for_too_much_is_dropped_itself() -> None:
    memory = PortMemory[Holder](100 * KB)
    other = Holder(memory, "10.0.0.1", 40)
    large = Holder(memory, "10.0.0.1", 101)
    assert (large.is_dropped, other.is_dropped) == (True, False)
    assert memory.buffered_bytes == 40 * KB


def test_bytes_that_left_since_the_last_report_cost_no_connection() -> None:
    memory = PortMemory[Holder](100 * KB)
    read = [Holder(memory, "10.0.0.1", 50) for _ in range(2)]
    for each in read:
        each.buffered_bytes = 5 * KB
    Holder(memory, "10.0.0.2", 30)
    assert (memory.buffered_bytes, memory.dropped) == (40 * KB, 0)


def test_as_many_are_dropped_as_needed_and_no_more() -> None:
    memory = PortMemory[Holder](1_000 * KB)
    small = [Holder(memory, f"10.0.1.{number}", 10) for number in range(10)]
    many = [Holder(memory, "10.0.0.1", 90) for _ in range(10)]
    assert memory.buffered_bytes == 1_000 * KB
    Holder(memory, "10.0.0.2", 180)
    assert sum(each.is_dropped for each in many) == 2
    assert not any(each.is_dropped for each in small)


def test_large_requests_leave_room_for_small_ones() -> None:
    limit = 100 * SMALL_BYTES
    memory = PortMemory[Holder](limit)
    large = 25 * SMALL_BYTES
    for _ in range(3):
        assert memory.admits(large)
        memory.handles(large)
    assert not memory.admits(large)
    for _ in range(25):
        assert memory.admits(SMALL_BYTES)
        memory.handles(SMALL_BYTES)
    assert not memory.admits(1)
    assert memory.refused == 2
    memory.handles(-limit)
    assert memory.admits(large)


def test_a_report_after_a_refresh_counts_in_full() -> None:
    """Answers that were read and others that followed: the port knows of each."""
    memory = PortMemory[Holder](100 * KB)
    busy = Holder(memory, "10.0.0.1", 50)
    busy.buffered_bytes = 5 * KB
    other = Holder(memory, "10.0.0.2", 60)
    busy.buffered_bytes = 50 * KB
    memory.buffers(busy, busy.buffered_bytes)
    assert (other.is_dropped, memory.buffered_bytes) == (True, 50 * KB)
