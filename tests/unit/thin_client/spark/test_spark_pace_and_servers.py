"""How often a stream asks, and which proxy is tried first."""

from __future__ import annotations

from thin_client.spark.poll_pace import LEAST_S, MOST_S, PollPace
from thin_client.spark.server_order import REMEMBERED_S, KnownFailures

SERVERS = ("a:1", "b:1", "c:1")


def intervals(pace: PollPace, *, took_s: float, news: list[bool]) -> list[float]:
    """Return the times between requests, each as soon as it may begin."""
    found, now_s = [], 0.0
    for each in news:
        pace.asked(now_s, now_s + took_s, news=each)
        wait_s = pace.wait_s(now_s + took_s)
        found.append(round(took_s + wait_s, 6))
        now_s += took_s + wait_s
    return found


def test_an_idle_stream_asks_less_and_less_often() -> None:
    assert PollPace().wait_s(0.0) == 0.0
    news = [True, False, False, False, False, False, True]
    assert intervals(PollPace(), took_s=0.001, news=news) == [
        *(LEAST_S, 0.2, 0.4, 0.8, MOST_S, MOST_S),
        LEAST_S,
    ]


def test_a_stream_of_many_queues_spends_a_tenth_of_its_time_on_asking() -> None:
    assert intervals(PollPace(), took_s=0.5, news=[True, False]) == [5.0, 5.0]
    assert PollPace(10.0).wait_s(12.0) == 0.0


def test_a_stream_that_is_behind_asks_without_a_pause() -> None:
    """The queues grow no further while it reads a backlog: that is no idle stream."""
    pace = PollPace()
    for began_s in range(5):
        pace.asked(began_s, began_s + 0.5, news=False, behind=True)
        assert pace.wait_s(began_s + 0.5) == 0.0
    pace.asked(5.0, 5.001, news=False)  # it has caught up
    assert round(pace.wait_s(5.001), 6) == 0.199


def test_tasks_begin_at_different_proxies() -> None:
    known = KnownFailures()
    firsts = [known.order(SERVERS, 0.0, turn=turn)[0] for turn in range(4)]
    assert firsts == ["a:1", "b:1", "c:1", "a:1"]
    assert known.order(SERVERS, 0.0, turn=1) == ("b:1", "c:1", "a:1")


def test_a_proxy_that_did_not_answer_is_tried_last_for_a_while() -> None:
    known = KnownFailures()
    known.failed("a:1", 5.0)
    assert known.order(SERVERS, 6.0) == ("b:1", "c:1", "a:1")
    assert known.order(SERVERS, 6.0, turn=3) == ("c:1", "b:1", "a:1")
    known.failed("b:1", 7.0)
    known.failed("c:1", 6.0)
    assert known.order(SERVERS, 8.0, turn=7) == ("a:1", "c:1", "b:1")
    assert known.order(SERVERS, 5.0 + REMEMBERED_S)[0] == "a:1"
    known.answered("b:1")
    assert known.order(SERVERS, 8.0)[0] == "b:1"
