"""Requests of a bulk reader; the proxy is a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from thin_client.calls import Call
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.offsets import stream_offset
from thin_client.spark.options import Connecting
from thin_client.spark.proxy_calls import ProxyCalls
from thin_client.spark.selection import Selection
from thrift_idl import consumer

A0, A1, B0 = ("a", "x_0"), ("a", "x_1"), ("b", "x_0")


def client(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Call[Any]], Any]) -> BulkClient:
    """Return a client whose calls *answer* answers."""

    def ask(_: ProxyCalls, make: Callable[[], Call[Any]], **__: Any) -> Any:
        return answer(make())

    monkeypatch.setattr(ProxyCalls, "ask", ask)
    return BulkClient(Connecting(servers=("127.0.0.1:1",), group="lake"))


def test_a_report_names_the_lives_in_which_the_selected_queues_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[consumer.ProgressReport] = []

    def answer(call: Call[Any]) -> consumer.ReportAnswer:
        requests.append(call.arguments.request)
        return consumer.ReportAnswer()

    it = client(monkeypatch, answer)
    offsets = stream_offset({A0: 4, A1: 5, B0: 6}, {A0: 17, B0: 18})
    it.report(Selection(subscribe=("a",)).part_of(offsets))
    it.report(offsets)
    it.report({"a": {"x_0": 4}})
    it.report(Selection(subscribe=("c",)).part_of(offsets))
    positions = {"a": {"x_0": 4, "x_1": 5}}
    assert [(each.offsets, each.lives) for each in requests] == [
        (positions, {"a": {"x_0": 17}}),
        ({**positions, "b": {"x_0": 6}}, {"a": {"x_0": 17}, "b": {"x_0": 18}}),
        ({"a": {"x_0": 4}}, None),
        ({}, None),
    ]
