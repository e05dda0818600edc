"""Progress of an order-key change over all proxies, with made-up answers."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.names import Topic
from proxy.cli import order_key_rollout
from proxy.cli.order_key_sample import Known
from proxy.core.jobs.hand_out import HandOut
from proxy.settings.groups import TopicSettings
from tests.support.command_line import CommandLine


def _queue(name: str) -> dict[str, Any]:
    same = {"key_rule": "QID", "key_version": 2, "older": 0, "key_change": ""}
    return {"topic": "orders", "queue": name, **same}


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """Two proxies, a and b, own a queue each when owners are listed; returns the queues that they
    show, by address.
    """
    shown = {"a": [_queue("q0")], "b": [_queue("q1")]}
    owners = [
        {"topic": "orders", "queue": queue, "state": "owned", "owner": at, "http": at}
        for queue, at in (("q0", "a"), ("q1", "b"))
    ]
    topic = TopicSettings(name=Topic("orders"), order_key="QID")
    known = Known("g", {"source": "store"}, topic, HandOut.OLDEST, 100)
    group = {"topics": [{"name": "orders", "order_key": "QID"}]}
    for name, made in {
        "known": lambda *_: known,
        "check_served": lambda _: None,
        "one_of": lambda _: "a",
        "look": lambda *_, **__: {"proxy": "a", "queues": owners},
        "queues_at": lambda address, _: (group, shown[address]),
    }.items():
        monkeypatch.setattr(order_key_rollout, name, made)
    return shown


def _rollout(orderlane: CommandLine) -> Any:
    return orderlane("order-key", "rollout", "g", "QID", "--reason", "a test", "--timeout", 0)


def test_a_change_is_complete_once_all_queues_have_it(
    orderlane: CommandLine, moves: dict[str, list[dict[str, Any]]]
) -> None:
    ended = _rollout(orderlane)
    assert (ended.code, "all 2 owned queues use order key QID" in ended.err) == (0, True)


@pytest.mark.parametrize(("queue", "at"), [("q1", "b"), ("q0", "a")])
def test_a_change_is_not_complete_while_an_owned_queue_is_not_seen(
    orderlane: CommandLine, moves: dict[str, list[dict[str, Any]]], queue: str, at: str
) -> None:
    """The queue moved to another proxy between the requests."""
    moves[at].clear()
    ended = _rollout(orderlane)
    assert ended.code == 1
    assert f"{queue} not shown: the proxy at {at} no longer owns it" in ended.err
    assert "not complete after 0 s" in ended.err


@pytest.mark.usefixtures("moves")
def test_a_group_that_clients_created_has_no_settings_to_change(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = TopicSettings(name=Topic("orders"), order_key="KEY")
    made = Known("g", {"source": "clients"}, topic, HandOut.OLDEST, 100)
    monkeypatch.setattr(order_key_rollout, "known", lambda *_: made)

    refused = orderlane.problem("order-key", "rollout", "g", "none", "--reason", "a test")
    assert "group 'g' was created by its clients and has no settings" in refused
    assert "orderlane groups create g" in refused
    shown = orderlane("order-key", "get", "g").err
    assert "no settings name its order key" in shown
    assert "queues without a recorded one use KEY" in shown
