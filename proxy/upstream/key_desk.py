"""What operators do with single keys of the queues that this proxy owns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker_core.names import Group
from proxy.errors import OrderlaneError, UnknownName
from proxy.upstream.ownership import GroupOwnership
from proxy.upstream.parking import Parking


class KeyDesk:
    """Finds the queue of a key. Another proxy may own it: then the answer says so."""

    def __init__(self, ownerships: Mapping[Group, GroupOwnership]) -> None:
        self._ownerships = ownerships

    def parked(self, group: str, topic: str) -> list[dict[str, Any]]:
        """Parked keys by queue. Raises UnknownName for an unknown group or topic."""
        return [
            parking.view(key)
            for parking in self._owned(group, topic)
            for key in sorted(parking.keys())
        ]

    def act(
        self,
        group: str,
        topic: str,
        verb: str,
        key: str,
        *,
        by: str,
        reason: str,
        dry_run: bool,
        rate: float,
    ) -> dict[str, Any]:
        """Do *verb*; returns what became of the key. Raises OrderlaneError if it cannot be."""
        owned = list(self._owned(group, topic))
        for parking in owned:
            for found in parking.named(key):
                if dry_run:
                    return parking.view(found)
                if verb == "park" and parking.park(found, by=by, reason=reason):
                    return parking.view(found)
                if verb == "redrive" and parking.redrive(found, by=by, rate=rate):
                    return parking.view(found)
                if verb == "stop" and parking.stop(found, by=by):
                    return parking.view(found)
        raise OrderlaneError(
            f"{_WHY_NOT[verb].format(key=key)} in the queues of {topic!r} that this proxy owns for"
            f" {group!r} ({', '.join(each.place for each in owned) or 'none now'}): ask the proxy"
            " that owns its queue, or once more in a moment"
        )

    def _owned(self, group: str, topic: str) -> Iterator[Parking]:
        ownership = self._ownerships.get(Group(group))
        if ownership is None or not ownership.consumes(topic):
            raise UnknownName(f"this proxy has no group {group!r} with a topic {topic!r}")
        return ownership.parkings(topic)


_WHY_NOT = {
    "park": "key {key!r} has nothing unfinished in memory, or is parked,",
    "redrive": "key {key!r} is not parked",
    "stop": "key {key!r} is not redriven",
}
