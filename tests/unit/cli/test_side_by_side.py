"""``side_by_side`` works like ``map`` in several processes; a killed process is one sentence."""

from __future__ import annotations

import os
import signal

import pytest

from proxy.cli.side_by_side import side_by_side
from proxy.errors import OrderlaneError


@pytest.fixture(params=[1, 3])
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(request.param)))
    return int(request.param)


def test_it_maps_in_other_processes_if_there_are_processors(processors: int) -> None:
    known = [10, 20, 30, 40]  # neither copied nor an argument
    here = os.getpid()

    found = list(side_by_side(lambda place: (known[place], os.getpid() == here), range(4)))

    assert [each for each, _ in found] == known
    assert {inside for _, inside in found} == {processors == 1}


def test_no_items_give_no_results(processors: int) -> None:
    assert list(side_by_side(str, [])) == []


def test_errors_of_the_work_are_raised(processors: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda each: 1 // each, [1, 0]))

    assert list(side_by_side(lambda each: 1 // each, [1, 1])) == [1, 1]


def test_a_killed_process_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    with pytest.raises(OrderlaneError, match=r"one of 2 processes was killed; .* smaller sample"):
        list(side_by_side(lambda _: os.kill(os.getpid(), signal.SIGKILL), [1, 2]))
