from __future__ import annotations

from proxy.core.jobs.window import Budget, FlowWindow


def calm(window: FlowWindow) -> int:
    return window.room(demand=False)


def test_the_rest_of_a_budget_is_never_negative() -> None:
    assert Budget(10, used=4).left == 6
    assert Budget(10, used=14).left == 0


def test_chained_and_leased_jobs_alike_take_room_up_to_half() -> None:
    window = FlowWindow(16, Budget(1000))
    for _ in range(3):
        window.admit(10)
    assert (window.jobs, calm(window), window.used_bytes, window.memory.used) == (3, 5, 30, 30)
    assert window.room(demand=True) == 13


def test_past_half_of_it_only_clients_that_wait_have_a_queue_read_on() -> None:
    window = FlowWindow(4, Budget(1000))
    window.admit(1)
    assert not window.pressed
    window.admit(1)
    assert (window.pressed, calm(window), window.room(demand=True)) == (True, 0, 2)


def test_spilled_jobs_take_eight_bytes_and_a_place_each() -> None:
    window = FlowWindow(8, Budget(1000))
    window.admit(10)
    window.spill(3)
    assert (window.used_bytes, window.pressed) == (34, True)
    assert (calm(window), window.room(demand=True)) == (0, 7)
    window.spill(-3)
    assert (window.used_bytes, window.pressed, calm(window)) == (10, False, 3)


def test_a_full_window_reads_again_once_a_quarter_is_free() -> None:
    """Avoids reads of single messages while a full window drains."""
    window = FlowWindow(16, Budget(1000))
    for _ in range(8):
        window.admit(1)
    rooms = []
    for _ in range(3):
        window.leave(1)
        rooms.append(calm(window))
    assert rooms == [0, 2, 3]


def test_a_broker_may_answer_with_more_than_there_was_room_for() -> None:
    window = FlowWindow(2, Budget(1000))
    for _ in range(3):
        window.admit(1)
    assert (calm(window), window.room(demand=True)) == (0, 0)


def test_the_tightest_window_opens_again() -> None:
    window = FlowWindow(1, Budget(1000))
    window.admit(1)
    assert calm(window) == 0
    window.leave(1)
    assert calm(window) == 1


def test_memory_that_other_queues_hold_stops_a_queue_only_while_it_holds_something_itself() -> None:
    """Otherwise an empty queue would wait forever for memory of others."""
    memory = Budget(100)
    greedy, other = FlowWindow(16, memory), FlowWindow(16, memory)
    greedy.admit(100)
    assert (calm(greedy), calm(other)) == (0, 8)
    other.admit(1)
    assert (calm(other), other.room(demand=True)) == (0, 0)
    greedy.leave(100)
    assert (calm(greedy), calm(other)) == (8, 7)


def test_a_dropped_queue_gives_back_its_memory_and_no_one_elses() -> None:
    memory = Budget(100)
    dropped, other = FlowWindow(4, memory), FlowWindow(4, memory)
    other.admit(7)
    dropped.admit(20)
    dropped.spill(2)
    dropped.clear()
    assert (memory.used, dropped.jobs, dropped.used_bytes, calm(dropped)) == (7, 0, 0, 2)
