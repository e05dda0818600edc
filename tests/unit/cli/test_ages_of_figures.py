"""Figures of queues without an owner come from records: tables say how old they are."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from broker_core.clock import wall_ms
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
