"""Threads have their turns in the order in which they asked for them."""

from __future__ import annotations

import threading

import pytest

from thin_client.turns import Turns


def test_a_thread_that_asks_again_comes_behind_those_that_wait() -> None:
    turns, order = Turns(), list[str]()
    first, waiting = turns.ask(), [turns.ask(), turns.ask()]

    def take(name: str, place: int) -> None:
        with waiting[place]:
            order.append(name)

    with first:
        threads = [threading.Thread(target=take, args=each) for each in (("c", 1), ("b", 0))]
        for thread in threads:
            thread.start()
        again = turns.ask()
        order.append("a")
    with again:
        order.append("a again")
    for thread in threads:
        thread.join()
    assert order == ["a", "b", "c", "a again"]


def test_an_interrupted_wait_gives_its_place_up(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    first, second, third = turns.ask(), turns.ask(), turns.ask()

    def interrupted(_self: threading.Event, _timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    with first:
        monkeypatch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            second.__enter__()
        monkeypatch.undo()
    with third:
        pass
