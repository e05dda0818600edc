"""Requests of a bulk reader; the proxy is a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from thin_client.calls import Call
from thin_client.errors import Refused
from thin_client.spark.bulk_client import BulkClient, DataLost
from thin_client.spark.offsets import Slice, stream_offset
from thin_client.spark.options import Connecting
from thin_client.spark.proxy_calls import PATIENCE_S, ProxyCalls
from thin_client.spark.selection import Selection
from thrift_idl import consumer

A0, A1, B0 = ("a", "x_0"), ("a", "x_1"), ("b", "x_0")


def client(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[Call[Any]], Any],
    *,
    patience_s: float = PATIENCE_S,
) -> BulkClient:
    """Return a client whose calls *answer* answers."""

    def ask(_: ProxyCalls, make: Callable[[], Call[Any]], **__: Any) -> Any:
        return answer(make())

    monkeypatch.setattr(ProxyCalls, "ask", ask)
    connecting = Connecting(servers=("127.0.0.1:1",), group="lake")
    return BulkClient(connecting, patience_s=patience_s)


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


@pytest.mark.parametrize("group", [True, False], ids=["topic gone", "group gone"])
def test_a_slice_is_lost_with_its_topic_but_not_with_its_group(
    monkeypatch: pytest.MonkeyPatch, group: bool
) -> None:
    """A proxy without the group answers a fetch with no records, as if there were no messages."""

    def answer(call: Call[Any]) -> Any:
        if call.method == "fetch":
            return consumer.FetchResponse(results=[consumer.QidResponse("a", "x_0", 4, [])])
        if call.method == "topics" and group:
            return []
        raise Refused(404, "no topic 'a' here" if group else "no group 'lake' here")

    it = client(monkeypatch, answer, patience_s=0)
    wanted = pytest.raises(DataLost, match="the queue no longer exists")
    with wanted if group else pytest.raises(Refused, match="no group 'lake' here"):
        list(it.records(Slice("a", "x_0", 4, 9), batch_bytes=1000))
