"""The progress listener acks offsets that Spark reports; no session is needed."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from thin_client.errors import ConnectionLost
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.progress import ProgressListener

OPTIONS = {"servers": "127.0.0.1:1", "group": "lake", "subscribe": "orders"}
ENDED = {"orders": {"broker-a_0": 7, "broker-a_1": 0}}


@pytest.fixture
def acked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Mapping[str, int]]]:
    """Return the acks that the proxy received."""
    found: list[Mapping[str, Mapping[str, int]]] = []

    def take(_: BulkClient, offsets: Mapping[str, Mapping[str, int]], _counts: Any) -> None:
        found.append(offsets)

    monkeypatch.setattr(BulkClient, "report", take)
    return found


def heard(listener: ProgressListener, *ends: str, name: str = "copy", rows: int = 3) -> None:
    sources = [SimpleNamespace(endOffset=end) for end in ends]
    progress = SimpleNamespace(name=name, numInputRows=rows, sources=sources)
    listener.onQueryProgress(SimpleNamespace(progress=progress))


def test_the_end_of_a_batch_is_acked(acked: list[Any]) -> None:
    listener = ProgressListener(OPTIONS, query="copy")
    heard(listener, json.dumps(ENDED))
    heard(listener, json.dumps(ENDED), rows=4)
    assert acked == [ENDED, ENDED]
    assert (listener.rows, listener.batches) == (7, 2)


def test_a_topic_that_is_no_longer_read_does_not_hide_the_progress_of_the_others(
    acked: list[Any],
) -> None:
    """The checkpoint keeps its position."""
    about = {"version": 2, "orders/broker-a_0": 17}
    listener = ProgressListener(OPTIONS, query="copy")
    heard(listener, json.dumps({"": about, **ENDED, "refunds": {"broker-a_0": 4}}))
    assert acked == [{"": about, **ENDED}]


def test_other_queries_are_not_our_progress(acked: list[Any]) -> None:
    listener = ProgressListener(OPTIONS, query="copy")
    heard(listener, json.dumps(ENDED), name="another")
    assert (acked, listener.rows) == ([], 0)


@pytest.mark.parametrize(
    "end",
    [
        *("null", "no JSON", "17", "{}", '{"orders": 4}', '{"orders": {}}'),
        *('{"orders": {"broker-a_0": "4"}}', '{"orders": {"broker-a_0": true}}'),
        *('{"refunds": {"broker-a_0": 4}}', '{"": {"version": "2"}, "orders": {"broker-a_0": 4}}'),
    ],
)
def test_other_sources_of_the_query_are_not_our_progress(acked: list[Any], end: str) -> None:
    listener = ProgressListener(OPTIONS, query="copy")
    heard(listener, end, json.dumps(ENDED))
    assert acked == [ENDED]


def test_an_unreachable_proxy_does_not_end_the_query(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(*_: Any) -> str:
        raise ConnectionLost("no connection to 127.0.0.1:1")

    listener = ProgressListener(OPTIONS, query="copy")
    with caplog.at_level(logging.WARNING):
        monkeypatch.setattr(BulkClient, "report", lost)
        heard(listener, json.dumps(ENDED))
        monkeypatch.setattr(BulkClient, "report", lambda *_: "another reader did")
        heard(listener, json.dumps(ENDED))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert listener.batches == 2


def test_a_query_without_a_name_gets_a_unique_one() -> None:
    names = {ProgressListener(OPTIONS).query for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("orderlane-lake-") for name in names)
