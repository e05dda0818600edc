"""What a bulk reader leaves behind once its group is removed."""

from __future__ import annotations

from typing import Any

from proxy.downstream.bulk.service import BulkService
from proxy.lane.lanes import Lanes
from proxy.settings.proxy_settings import LimitSettings
from testkit.lanes import GROUP, group_settings, make_lane


def test_the_readers_of_a_removed_group_are_forgotten() -> None:
    lanes = Lanes(make_lane)
    lane = lanes.add(group_settings())
    client: Any = None
    service = BulkService(client, lanes, LimitSettings(), served_ns=lambda: None)
    service._positions.readers_of(lane).present("reader", 0)
    assert list(service.reading()) == [GROUP]
    service.forget(lane.name)
    assert not service.reading()
