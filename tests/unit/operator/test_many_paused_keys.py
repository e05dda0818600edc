"""Lists of paused keys: a pause of a key is one of each queue of its topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.core.keys.ids import Epoch
from proxy.core.pipeline.key_views import KeyView, KeyViews
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Snapshot
from proxy.operator.key_board import KeyBoard
from proxy.operator.recorded_keys import RecordedKeys, RecordedQueue, RecordedQueues
from testkit.lanes import GROUP
from testkit.pipelines import pipeline, queue

PAUSE = PausedKey(0, "ann", "it floods")


async def test_only_those_that_are_shown_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 300 keys in 100 queues, a list kept the proxy from its clients for two seconds."""
    owned = [pipeline(of=queue(number)) for number in range(3)]
    for each in owned:
        each.pause(EVERYTHING, PAUSE)
        for number in range(50):
            each.pause(b"key-%02d" % number, PAUSE)
    last = Snapshot(Epoch(1), 0, 0, paused={b"key-00": PAUSE, b"other": PAUSE})
    free, gone = RecordedQueue(queue(7), last), RecordedQueue(queue(2), last)

    async def queues(*_: object, **__: object) -> RecordedQueues:
        return RecordedQueues((free, gone), {"broker-b": "no answer"})

    looks, of = 0, KeyViews.of

    def counted(views: KeyViews, key: bytes) -> KeyView:
        nonlocal looks
        looks += 1
        return of(views, key)

    monkeypatch.setattr(RecordedKeys, "queues", queues)
    monkeypatch.setattr(KeyViews, "of", counted)
    parkings = [SimpleNamespace(pipeline=each) for each in owned]
    ownership = SimpleNamespace(consumes=lambda _: True, parkings=lambda _: iter(parkings))
    nothing: Any = None
    ownerships: Any = {GROUP: ownership}
    found = await KeyBoard(nothing, ownerships, nothing).paused(GROUP, "orders", 6)
    assert [(row["key"], row["queue"]) for row in found.rows] == [
        ("key-00", "broker-a_0"),
        ("key-00", "broker-a_1"),
        ("key-00", "broker-a_2"),
        ("key-00", "broker-a_7"),
        ("key-01", "broker-a_0"),
        ("key-01", "broker-a_1"),
    ]
    assert all(row["paused"] and row["by"] == "ann" for row in found.rows)
    assert found.unanswered == {"broker-b": "no answer"}
    assert looks == 5
