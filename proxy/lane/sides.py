"""Turns of a group's clients and of the proxy's own deliveries, which share the group's limits."""

from __future__ import annotations

from collections.abc import Callable

from proxy.lane.group_lane import GroupLane

#: Hands out ready jobs of a lane to one side.
Dispatch = Callable[[GroupLane], None]


class Sides:
    """Decides which side goes first: the limits may be enough for only one. A side that was first
    and got messages is last at the next time. Calls in which it gets none do not count: otherwise
    their number would decide, and one side could always be first when there is room.
    """

    def __init__(self, clients: Dispatch, own: Dispatch) -> None:
        """*own* delivers what the proxy delivers itself."""
        self._clients, self._own = clients, own

    def dispatch(self, lane: GroupLane) -> None:
        """Hand out the ready jobs of *lane*."""
        if not lane.presence.delivers_itself:
            self._clients(lane)
            return
        own_first, before = lane.own_first, lane.leases_of_group.used
        (self._own if own_first else self._clients)(lane)
        if lane.leases_of_group.used > before:
            lane.change_sides()
        (self._clients if own_first else self._own)(lane)
