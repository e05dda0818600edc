from __future__ import annotations

from proxy.core.flow_window import Budget, FlowWindow


def test_what_is_left_of_a_budget_is_never_negative() -> None:
    assert Budget(10, used=4).left == 6
    assert Budget(10, used=14).left == 0


def test_chained_and_leased_jobs_alike_take_room() -> None:
    window = FlowWindow(8, Budget(1000))
    for _ in range(3):
        window.admit(10)
    assert (window.jobs, window.room, window.used_bytes, window.memory.used) == (3, 5, 30, 30)


def test_a_full_window_reads_again_once_a_quarter_is_free() -> None:
    """No reads of one message each while a full window drains."""
    window = FlowWindow(8, Budget(1000))
    for _ in range(8):
        window.admit(1)
    rooms = []
    for _ in range(3):
        window.leave(1)
        rooms.append(window.room)
    assert rooms == [0, 2, 3]


def test_a_broker_may_answer_with_more_than_there_was_room_for() -> None:
    window = FlowWindow(2, Budget(1000))
    for _ in range(3):
        window.admit(1)
    assert window.room == 0


def test_the_tightest_window_opens_again() -> None:
    window = FlowWindow(1, Budget(1000))
    window.admit(1)
    assert window.room == 0
    window.leave(1)
    assert window.room == 1


def test_memory_that_other_queues_hold_stops_a_queue_only_while_it_holds_something_itself() -> None:
    """Or a queue that holds nothing would wait for ever for memory that is not its own."""
    memory = Budget(100)
    greedy, other = FlowWindow(8, memory), FlowWindow(8, memory)
    greedy.admit(100)
    assert (greedy.room, other.room) == (0, 8)
    other.admit(1)
    assert other.room == 0
    greedy.leave(100)
    assert (greedy.room, other.room) == (8, 7)


def test_a_dropped_queue_gives_back_its_memory_and_no_one_elses() -> None:
    memory = Budget(100)
    dropped, other = FlowWindow(2, memory), FlowWindow(2, memory)
    other.admit(7)
    dropped.admit(20)
    dropped.admit(30)
    dropped.clear()
    assert (memory.used, dropped.jobs, dropped.used_bytes, dropped.room) == (7, 0, 0, 2)
