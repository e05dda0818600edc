"""The state of a group names what an operator must know first, and claims nothing unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.group.group_state import GroupPicture, Handled, state_of
from proxy.core.group.known_queue import Figures

FIGURES = Figures(
    queues=2,
    unowned=0,
    elsewhere=0,
    unknown=0,
    at_ms=1,
    lag=0,
    unfinished=0,
    blocked=0,
    parked=0,
    parked_keys=0,
    paused_keys=0,
    oldest_ms=None,
)
UNOWNED = replace(FIGURES, unowned=2)
HANDLED = Handled(delivered=3, committed=True)


def word(figures: Figures = FIGURES, **more: Any) -> str:
    owned = figures.queues - figures.unowned
    given = {"owned": owned, "dead_letters": 0, "handled": HANDLED, **more}
    return state_of(GroupPicture(figures=figures, **given)).word


@pytest.mark.parametrize(
    ("state", "figures", "more"),
    [
        ("caught up", {}, {}),
        ("paused", {}, {"paused": "by ann: the bank is closed"}),
        ("queues refused", {}, {"refused": {"a_0": "older settings"}}),
        ("error", {}, {"trouble": "copies cannot be stored"}),
        ("blocked", {"unfinished": 2}, {"unfinished": 2, "blocked": 2}),
        ("processing", {"unfinished": 2}, {"unfinished": 2, "leased": 1, "waiting_pulls": 1}),
        ("processing", {"lag": 9}, {"unread": 9}),
        ("no pulls", {}, {"unfinished": 1, "ready": 1}),
        ("retrying", {}, {"unfinished": 1, "retrying": 1, "leased": 1}),
        ("parked", {"parked": 5, "parked_keys": 1}, {}),
        ("dead-lettered", {}, {"dead_letters": 3}),
        ("filtered", {}, {"handled": Handled(filtered=7, committed=True)}),
        ("no messages", {}, {"handled": Handled()}),
        ("no owner", {"unowned": 1, "lag": 4}, {}),
        ("unknown", {}, {"dead_letters": None}),
        ("unknown", {}, {"silent": ["broker-b"]}),
        ("processing", {"unfinished": 2}, {"unfinished": 2, "leased": 1, "silent": ["broker-b"]}),
        ("unknown", {"unowned": 1, "unknown": 1, "lag": None}, {}),
    ],
)
def test_states_of_a_group_with_owned_queues(
    state: str, figures: dict[str, Any], more: dict[str, Any]
) -> None:
    assert word(replace(FIGURES, **figures), **more) == state


@pytest.mark.parametrize(
    ("state", "figures", "more"),
    [
        ("no clients", {}, {}),
        ("no clients", {"lag": 4}, {}),
        ("no clients", {"lag": 4}, {"silent": ["broker-b"]}),
        ("unknown", {}, {"silent": ["broker-b"]}),
        ("processing", {"lag": 4}, {"bulk_readers": 1}),
        ("never consumed", {}, {"ever_owned": False, "handled": Handled()}),
        ("parked", {"parked_keys": 1}, {}),
        ("dead-lettered", {}, {"dead_letters": 1}),
        ("unknown", {"lag": None}, {}),
        ("unknown", {}, {"complete": False}),
        ("at other proxies", {"queues": 0, "unowned": 0, "elsewhere": 2, "lag": None}, {}),
        ("no queues", {"queues": 0, "unowned": 0, "lag": None}, {}),
        ("broadcast", {"queues": 0, "unowned": 0, "lag": None}, {"broadcast": True}),
    ],
)
def test_states_of_a_group_without_owned_queues(
    state: str, figures: dict[str, Any], more: dict[str, Any]
) -> None:
    assert word(replace(UNOWNED, **figures), **{"owned": 0, **more}) == state
