"""Hand-over of a queue to a named proxy: that proxy expects it, then the owner hands it over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.names import Group, QueueName
from proxy.core.access.audit_record import Change
from proxy.errors import WrongState
from proxy.lane.lanes import Lanes, topic_named
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.demand import GroupMembers
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.owner_book import OwnerBook


@dataclass(frozen=True, slots=True)
class QueueWish:
    """The queue, the caller and the reason."""

    group: str
    topic: str
    qid: str
    by: str
    reason: str


class HandoffDesk:
    """Both steps of a hand-over. The broker's lock and the epoch decide who owns the queue."""

    def __init__(
        self,
        context: UpstreamContext,
        lanes: Lanes,
        ownerships: Mapping[Group, GroupOwnership],
        book: OwnerBook,
    ) -> None:
        self._context = context
        self._lanes = lanes
        self._ownerships = ownerships
        self._book = book

    async def expect(self, wish: QueueWish) -> dict[str, Any]:
        """Let this proxy try to own the queue for a while, and keep it once it does.

        Raises UnknownName, WrongState, RemotingError.
        """
        group, queue = await self._found(wish)
        us, ownership = self._us, self._ownerships[group]
        if self._context.away:
            raise WrongState(f"{us} is drained and takes no queues: {self._context.away}")
        if ownership.owned(queue) is not None:
            raise WrongState(f"{us} already owns queue {queue.qid} of {queue.topic!r}")
        await self._check_member(group, queue, us)
        async with self._context.audit.change(
            _change(wish, "owners expect", {"expected": False}, {"expected": True})
        ):
            ownership.expect(queue)
        return _view(group, queue, to=us)

    async def hand_off(self, wish: QueueWish, to: str) -> dict[str, Any]:
        """Hand the queue over to the member *to*; return when it is released.

        Raises UnknownName, OwnedElsewhere, WrongState, RemotingError.
        """
        group, queue = await self._found(wish)
        us, ownership = self._us, self._ownerships[group]
        owned = ownership.owned(queue)
        if owned is None:
            await self._book.refuse_elsewhere(group, queue)
            raise WrongState(f"queue {queue.qid} of {queue.topic!r} has no owner")
        if to == us:
            raise WrongState(f"{us} already owns queue {queue.qid} of {queue.topic!r}")
        await self._check_member(group, queue, to)
        owned.for_reset()
        async with self._context.audit.change(
            _change(wish, "owners handoff", {"owner": us}, {"owner": to})
        ):
            if (refusal := await asyncio.shield(ownership.give(queue, to))) is not None:
                raise refusal
        return _view(group, queue, to=to)

    # ---- inside ---------------------------------------------------------------------------------

    @property
    def _us(self) -> str:
        return self._context.client.client_id

    async def _found(self, wish: QueueWish) -> tuple[Group, QueueName]:
        lane = self._lanes.named(wish.group)
        topic = topic_named(lane, wish.topic)
        return lane.name, await self._book.queue(lane.name, topic, wish.qid)

    async def _check_member(self, group: Group, queue: QueueName, member: str) -> None:
        there = await GroupMembers(self._context.client, group).wanting(queue.topic)
        if member not in there.members:
            raise WrongState(
                f"{member} has no clients of group {group!r}; proxies with clients:"
                f" {', '.join(sorted(there.members)) or 'none'}"
            )
        if member not in there.takers:
            raise WrongState(
                f"{member} has no clients of group {group!r} that want {queue.topic!r}; proxies"
                f" with such clients: {', '.join(sorted(there.takers))}"
            )


def _change(wish: QueueWish, verb: str, before: dict[str, Any], after: dict[str, Any]) -> Change:
    return Change(
        actor=wish.by,
        verb=verb,
        group=wish.group,
        reason=wish.reason,
        topic=wish.topic,
        target=wish.qid,
        before=before,
        after=after,
    )


def _view(group: Group, queue: QueueName, *, to: str) -> dict[str, Any]:
    return {"group": group, "topic": queue.topic, "queue": queue.qid, "to": to}
