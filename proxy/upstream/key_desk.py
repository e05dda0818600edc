"""What operators do with single keys of the queues that this proxy owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from proxy.core.order_key import key_text
from proxy.core.ownership_replay import LastOwner
from proxy.errors import OrderlaneError, OwnedElsewhere, UnknownName
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership import GroupOwnership
from proxy.upstream.parking import Parking


class KeyDesk:
    """Finds the queue of a key. Another proxy may own it: then the answer names that one."""

    def __init__(
        self, context: UpstreamContext, ownerships: Mapping[Group, GroupOwnership]
    ) -> None:
        self._context = context
        self._ownerships = ownerships

    def parked(self, group: str, topic: str) -> list[dict[str, Any]]:
        """Parked keys by queue. Raises UnknownName for an unknown group or topic."""
        return [
            parking.view(key)
            for parking in self._owned(group, topic)
            for key in sorted(parking.keys())
        ]

    async def act(
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
        """Do *verb*; returns what became of the key. Raises OwnedElsewhere if proxies own queues
        that may have it, another OrderlaneError if it cannot be.
        """
        owned = list(self._owned(group, topic))
        for parking in owned:
            do: dict[str, Callable[[bytes], bool]] = {
                "park": partial(parking.park, by=by, reason=reason),
                "redrive": partial(parking.redrive, by=by, rate=rate),
                "stop": partial(parking.stop, by=by),
            }
            for found in parking.named(key):
                if parking.knows(found) if dry_run else do[verb](found):
                    return parking.view(found)
        places = ", ".join(each.place for each in owned) or "none now"
        why = (
            f"{_WHY_NOT[verb].format(key=key)} in the queues of {topic!r} that this proxy owns for"
            f" {group!r} ({places})"
        )
        others = await self._owners(Group(group), Topic(topic), key, why, but=owned)
        if not others:
            raise OrderlaneError(
                f"{why}, and no other proxy owns one: ask once more in a moment if it should be"
            )
        owners = {last.own.owner: last.own.http for _, last in others}
        raise OwnedElsewhere(
            f"{why}: ask {'; or '.join(_named(owner, others) for owner in owners)}",
            addresses=tuple(http for http in owners.values() if http),
        )

    async def _owners(
        self, group: Group, topic: Topic, key: str, why: str, *, but: Sequence[Parking]
    ) -> list[tuple[QueueName, LastOwner]]:
        """The queues of *topic* that other proxies own, by their ownership records: those that have
        *key* as a parked one, or, if none says so, all of them.
        """
        context, ours = self._context, {parking.pipeline.queue for parking in but}
        try:
            queues = [each for each in await context.client.queues(topic) if each not in ours]
            found = await asyncio.gather(*(context.log.owner(group, each) for each in queues))
        except RemotingError as error:
            raise OrderlaneError(
                f"{why}, and who owns the others cannot be asked: {error}"
            ) from None
        others = [
            (queue, last)
            for queue, last in zip(queues, found, strict=True)
            if last is not None and not last.clean and last.own.owner != context.client.client_id
        ]
        return [each for each in others if _lists(each[1], key)] or others

    def _owned(self, group: str, topic: str) -> Iterator[Parking]:
        ownership = self._ownerships.get(Group(group))
        if ownership is None or not ownership.consumes(topic):
            raise UnknownName(f"this proxy has no group {group!r} with a topic {topic!r}")
        return ownership.parkings(topic)


def _lists(last: LastOwner, key: str) -> bool:
    parked = () if last.snapshot is None else last.snapshot.parked
    return any(key_text(each) == key for each in parked)


def _named(owner: str, others: Sequence[tuple[QueueName, LastOwner]]) -> str:
    """The proxy *owner*, and what it owns."""
    queues = ", ".join(queue.qid for queue, last in others if last.own.owner == owner)
    http = next(last.own.http for _, last in others if last.own.owner == owner)
    return f"{owner} ({f'HTTP {http}' if http else 'address unknown'}), which owns {queues}"


_WHY_NOT = {
    "park": "key {key!r} has nothing unfinished in memory, or is parked,",
    "redrive": "key {key!r} is not parked",
    "stop": "key {key!r} is not redriven",
}
