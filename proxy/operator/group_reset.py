"""Resets a group in all queues of its topics at once, or of one topic."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from broker_core.errors import RemotingError
from broker_core.names import QueueName, Topic
from proxy.errors import OrderlaneError, OwnedElsewhere, WrongState
from proxy.lane.lanes import Lanes, topic_named
from proxy.operator.offset_desk import OffsetDesk, ResetWish
from proxy.upstream.ownership.owner_book import OwnerBook

#: Queues that are checked at a time.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class GroupResetWish:
    """Target of a reset: a time, the begin, or else the end; of *topic*, None: of all topics."""

    by: str
    reason: str
    topic: str | None = None
    to_ms: int | None = None
    to_begin: bool = False
    dry_run: bool = False

    def of_queue(self, *, dry_run: bool) -> ResetWish:
        """Return the reset of one queue."""
        return ResetWish(
            self.by, self.reason, to_ms=self.to_ms, to_begin=self.to_begin, dry_run=dry_run
        )


@dataclass(slots=True)
class _Plan:
    """Checked queues: their dry runs, those of other proxies, and the addresses of these."""

    rows: dict[QueueName, dict[str, Any]]
    elsewhere: list[QueueName]
    owners: set[str]


class GroupReset:
    """Resets groups in the queues that this proxy owns and in those that no proxy owns.

    One object per process.
    """

    def __init__(self, desk: OffsetDesk, lanes: Lanes, book: OwnerBook) -> None:
        self._desk = desk
        self._lanes = lanes
        self._book = book

    async def reset(self, group: str, wish: GroupResetWish) -> dict[str, Any]:
        """Reset *group*. All queues are checked first; if one cannot be reset, none is.

        ``elsewhere`` counts queues of other proxies, whose addresses are ``owners``: they are left
        as they are. Raises UnknownName, OwnedElsewhere if other proxies own all queues, WrongState,
        Unavailable, RemotingError.
        """
        lane = self._lanes.named(group)
        topics = [Topic(each.name) for each in lane.settings.topics]
        if wish.topic is not None:
            topics = [topic_named(lane, wish.topic)]
        queues = await self._book.queues_of(lane.name, topics)
        plan = await self._checked(group, sorted(queues), wish)
        if wish.topic is None and lane.auto_created:
            # Clients of other proxies may have asked for further topics there.
            for row in await self._book.elsewhere(lane.name, but=topics):
                plan.elsewhere.append(row.queue)
                if row.last is not None and row.last.own.http:
                    plan.owners.add(row.last.own.http)
        if not plan.rows and plan.elsewhere:
            raise OwnedElsewhere(
                f"other proxies own all queues of group {group!r}: send the request there",
                addresses=tuple(sorted(plan.owners)),
            )
        if not wish.dry_run:
            await self._reset(group, plan, wish)
        return {
            "group": lane.name,
            "queues": list(plan.rows.values()),
            "elsewhere": len(plan.elsewhere),
            "owners": sorted(plan.owners),
            "dry_run": wish.dry_run,
        }

    # ---- inside ---------------------------------------------------------------------------------

    async def _checked(self, group: str, queues: list[QueueName], wish: GroupResetWish) -> _Plan:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(queue: QueueName) -> dict[str, Any] | OwnedElsewhere:
            async with slots:
                try:
                    asked = wish.of_queue(dry_run=True)
                    return await self._desk.reset(group, queue.topic, queue.qid, asked)
                except OwnedElsewhere as error:
                    return error

        plan = _Plan({}, [], set())
        for queue, found in zip(queues, await asyncio.gather(*map(one, queues)), strict=True):
            if isinstance(found, OwnedElsewhere):
                plan.elsewhere.append(queue)
                plan.owners.update(found.addresses)
            else:
                plan.rows[queue] = found
        return plan

    async def _reset(self, group: str, plan: _Plan, wish: GroupResetWish) -> None:
        """Reset the checked queues one after another; their rows become what was done."""
        asked, count = wish.of_queue(dry_run=False), len(plan.rows)
        for done, queue in enumerate(list(plan.rows)):
            try:
                plan.rows[queue] = await self._desk.reset(group, queue.topic, queue.qid, asked)
            except (OrderlaneError, RemotingError) as error:
                if done == 0:
                    raise
                raise WrongState(
                    f"{done} of {count} queues are reset, then queue {queue.qid} of"
                    f" {queue.topic!r} failed: {error}"
                ) from None
