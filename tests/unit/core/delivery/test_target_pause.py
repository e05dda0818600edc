"""A target that is down: tried with one message at a time, ever less often, until it answers."""

from __future__ import annotations

from proxy.core.delivery.target_pause import LONGEST_NS, SHORTEST_NS, TargetPause

MS = 1_000_000


def test_a_target_that_answers_takes_as_many_as_are_wanted() -> None:
    assert TargetPause().places(64, under_way=3, now_ns=0) == 64


def test_after_a_moment_one_message_tries_it() -> None:
    pause = TargetPause()
    assert pause.found_down("refused", began_ns=0, now_ns=5 * MS)
    assert pause.places(64, under_way=0, now_ns=5 * MS + SHORTEST_NS - 1) == 0
    assert pause.places(64, under_way=0, now_ns=5 * MS + SHORTEST_NS) == 1
    assert pause.places(64, under_way=1, now_ns=5 * MS + SHORTEST_NS) == 0


def test_each_time_it_is_still_down_the_moment_doubles_up_to_a_bound() -> None:
    pause, now, waits = TargetPause(), 0, []
    for _ in range(12):
        pause.found_down("refused", began_ns=now, now_ns=now)
        waits.append(pause.again_ns - now)
        now = pause.again_ns
    assert waits[:4] == [SHORTEST_NS, 2 * SHORTEST_NS, 4 * SHORTEST_NS, 8 * SHORTEST_NS]
    assert waits[-1] == LONGEST_NS
    assert pause.down_since_ns == 0


def test_attempts_that_were_under_way_beside_the_first_say_nothing_new() -> None:
    pause = TargetPause()
    assert pause.found_down("refused", began_ns=0, now_ns=1)
    until = pause.again_ns
    assert not pause.found_down("refused, too", began_ns=0, now_ns=2)
    assert (pause.again_ns, pause.reason) == (until, "refused")


def test_any_answer_ends_the_pause_and_the_next_one_starts_short() -> None:
    pause = TargetPause()
    for now in (0, 200 * MS, 900 * MS):
        pause.found_down("refused", began_ns=now, now_ns=now)
    assert pause.answered(began_ns=pause.again_ns)
    assert pause.places(64, under_way=9, now_ns=901 * MS) == 64
    assert not pause.answered(began_ns=5_000 * MS)
    pause.found_down("refused", began_ns=6_000 * MS, now_ns=6_000 * MS)
    assert pause.again_ns == 6_000 * MS + SHORTEST_NS


def test_an_answer_to_an_attempt_from_before_does_not_end_it() -> None:
    pause = TargetPause()
    pause.found_down("refused", began_ns=5, now_ns=10)
    assert not pause.answered(began_ns=9)
    assert pause.down_since_ns == 10
