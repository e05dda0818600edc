"""Figures of queues without an owner come from records: tables say how old they are."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from broker_core.clock import wall_ms
from proxy.cli.known_figures import known_queues
from proxy.errors import OrderlaneError
from tests.support.command_line import CommandLine


def _group(age_s: float) -> dict[str, Any]:
    at_ms = wall_ms() - int(age_s * 1000)
    zeros = dict.fromkeys(("lag", "unfinished", "blocked", "parked", "end", "committed"), 0)
    free = {"queue": "broker-a_0", "topic": "orders", "owned": "free", "at_ms": at_ms, **zeros}
    free |= {"trouble": "broker-a: refused", "oldest_ms": None, "paused_whole": False}
    own = {"queue": "broker-a_1", "topic": "orders", "paused_whole": False, **zeros}
    own |= dict.fromkeys(("ready", "leased", "position", "epoch"), 0)
    figures = {**zeros, "unowned": 1, "at_ms": at_ms}
    topic = {"name": "orders", "order_key": "KEY", "rate_limited": False, "figures": figures}
    return {
        **dict.fromkeys(("waiting_pulls", "bulk_readers")),
        "topics": [topic],
        "queues": [own],
        "others": [free],
        "paused": None,
        "max_rate": None,
    }


def _refuse(*_: object) -> None:
    raise OrderlaneError("the nameserver does not answer")


def test_the_lag_table_has_ages_and_reasons(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.cli.lag.proxy_groups", lambda _: {"billing": _group(7200)})
    monkeypatch.setattr("proxy.cli.lag.broker_client", _refuse)
    ended = orderlane("lag", "billing")
    head, free, own = (line.split() for line in ended.out.splitlines())
    place = head.index("age")
    assert free[place : place + 2] == ["2", "h"]
    assert own[place] == "-"
    assert ended.err.splitlines()[-1] == (
        "figures of orders/broker-a_0 are not newer: broker-a: refused"
    )
    rows = orjson.loads(orderlane("lag", "billing", "-o", "json").out)
    assert [("age" in row, "at_ms" in row) for row in rows] == [(False, True)] * 2


def test_the_table_of_groups_has_ages(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.cli.groups.proxy_groups", lambda _: {"billing": _group(7200)})
    head, row = (line.split() for line in orderlane("groups", "ls").out.splitlines())
    place = head.index("age")
    assert row[place : place + 2] == ["2", "h"]


def test_the_queues_of_a_group_are_put_together_once_for_all_its_topics(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand topics the list took minutes."""
    group, calls = _group(0), 0
    names = [f"t{number}" for number in range(30)]
    for part in ("topics", "queues", "others"):
        (only,) = group[part]
        field = "name" if part == "topics" else "topic"
        group[part] = [{**only, field: name} for name in names]

    def counted(groups: Any) -> Any:
        nonlocal calls
        calls += 1
        return known_queues(groups)

    monkeypatch.setattr("proxy.cli.groups.proxy_groups", lambda _: {"billing": group})
    monkeypatch.setattr("proxy.cli.groups.known_queues", counted)
    rows = orjson.loads(orderlane("groups", "ls", "-o", "json").out)
    assert [(row["topic"], row["queues"], row["unowned"]) for row in rows] == [
        (name, 1, 1) for name in names
    ]
    assert calls == 1
