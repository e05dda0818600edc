"""Bulk readers of a removed group are forgotten."""

from __future__ import annotations

from typing import Any

from broker_core.clock import now_ns
from proxy.downstream.bulk.positions import BulkPositions
from proxy.lane.lanes import Lanes
from testkit.lanes import GROUP, group_settings, make_lane


def test_the_readers_of_a_removed_group_are_forgotten() -> None:
    lanes = Lanes(make_lane)
    lane = lanes.add(group_settings())
    client: Any = None
    positions = BulkPositions(client, lanes)
    positions.readers_of(lane.name).present("reader", now_ns())
    assert positions.reading() == {GROUP: 1}
    positions.forget(lane.name)
    assert not positions.reading()
