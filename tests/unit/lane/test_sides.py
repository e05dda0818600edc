"""Turns of clients and of the proxy's own deliveries, where the group's limits allow one lease."""

from __future__ import annotations

import pytest

from broker_core.names import Topic
from proxy.lane.group_lane import GroupLane
from proxy.lane.sides import Sides
from testkit.lanes import TOPIC, group_settings, make_lane


class Site:
    """A lane with one lease, of which both sides want as many as they can get."""

    def __init__(self) -> None:
        self.lane = make_lane(group_settings(max_leased_jobs=1))
        self.served: list[str] = []
        self.sides = Sides(lambda lane: self.take(lane, "c"), lambda lane: self.take(lane, "p"))

    def take(self, lane: GroupLane, who: str) -> None:
        if lane.leases_of_group.left > 0:
            lane.leases_of_group.take(1)
            self.served.append(who)


@pytest.mark.parametrize("in_vain", [0, 1, 2, 3])
async def test_they_alternate_however_often_there_is_no_room(in_vain: int) -> None:
    site = Site()
    site.lane.presence.deliver([Topic(TOPIC)])
    for _ in range(6):
        site.sides.dispatch(site.lane)
        for _ in range(in_vain):
            site.sides.dispatch(site.lane)
        site.lane.leases_of_group.give_back(1)
    assert site.served == ["c", "p"] * 3


async def test_clients_are_served_alone_without_deliveries() -> None:
    site = Site()
    site.sides.dispatch(site.lane)
    site.lane.leases_of_group.give_back(1)
    site.sides.dispatch(site.lane)
    assert site.served == ["c", "c"]
