"""Views of keys: the busiest, hot, blocked and paused ones, and one key in detail.

Lists scan all keys of the queues owned by this proxy, in slices that do not block the event loop.
Paused and parked keys of queues without an owner come from their last records.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from broker_core.clock import now_ns, wall_ms
from broker_core.errors import RemotingError
from broker_core.names import Group, Topic
from proxy.core.access.audit_record import AuditWish
from proxy.core.keys.order_key import key_text, known_as
from proxy.core.keys.retry_policy import MS
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.pipeline.key_views import KeyView, KeyViews, slices
from proxy.errors import Unavailable, UnknownName
from proxy.operator.key_models import events_in_order
from proxy.operator.key_verbs import KeyVerbs
from proxy.operator.readers import SharedAnswers
from proxy.operator.recorded_keys import RecordedKeys, RecordedQueues
from proxy.operator.request_models import Listed
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.owner_book import OwnerBook
from proxy.upstream.parking.parked_keys import Parking


class KeyBoard:
    """Views of keys, one object per process."""

    def __init__(
        self,
        context: UpstreamContext,
        ownerships: Mapping[Group, GroupOwnership],
        book: OwnerBook,
    ) -> None:
        self._context = context
        self._ownerships = ownerships
        self._recorded = RecordedKeys(context, book)
        self._shared: SharedAnswers[RecordedQueues] = SharedAnswers(
            is_partial=lambda found: bool(found.unanswered)
        )

    async def top(self, group: str, topic: str, limit: int) -> list[dict[str, Any]]:
        """Return the keys with the most unfinished messages. O(keys). Raises UnknownName."""
        found: list[tuple[int, str, str, ParkingPipeline, bytes]] = []
        for pipeline in self._pipelines(group, topic):
            jobs = pipeline.jobs
            for some in slices(list(jobs.by_key)):
                sizes = (
                    (jobs.by_key.backlog(key), pipeline.place, key.hex(), pipeline, key)
                    for key in some
                )
                found = heapq.nlargest(limit, (*found, *sizes), key=lambda each: each[:3])
                await asyncio.sleep(0)
        return [_view(pipeline, key).row() for _, _, _, pipeline, key in found]

    async def hot(self, group: str, topic: str, limit: int) -> list[dict[str, Any]]:
        """Return the keys with the largest shares of deliveries in the last one to two minutes."""
        found = []
        for pipeline in self._pipelines(group, topic):
            counts, total = pipeline.hot.counts(now_ns=now_ns())
            found += [(count / total, key, pipeline) for key, count in counts.items()]
        found = heapq.nlargest(limit, found, key=lambda each: each[:2])
        return [{**_view(where, key).row(), "share": share} for share, key, where in found]

    async def blocked(self, group: str, topic: str, limit: int) -> list[dict[str, Any]]:
        """Return the keys blocked by their first message, oldest first. O(keys)."""
        found: list[KeyView] = []
        for pipeline in self._pipelines(group, topic):
            for some in slices(list(pipeline.jobs.by_key)):
                views = KeyViews(pipeline, now_ns=now_ns(), wall_ms=wall_ms())
                found += [view for view in map(views.of, some) if view.blocked]
                found = heapq.nlargest(limit, found, key=lambda view: view.age_ms or 0)
                await asyncio.sleep(0)
        return [view.row() for view in found]

    async def paused(self, group: str, topic: str, limit: int) -> Listed:
        """Return paused keys, with or without messages. O(paused keys of all queues)."""
        first: list[tuple[str, str, Callable[[], dict[str, Any]]]] = []

        async def add(
            place: str, keys: Iterable[bytes | None], row: Callable[[bytes], dict[str, Any]]
        ) -> None:
            nonlocal first
            for some in slices([key for key in keys if key is not None]):
                more = ((key_text(key) or "", place, partial(row, key)) for key in some)
                first = heapq.nsmallest(limit, (*first, *more), key=lambda each: each[:2])
                await asyncio.sleep(0)

        owned = list(self._pipelines(group, topic))
        for pipeline in owned:
            await add(pipeline.place, pipeline.paused, partial(_row, pipeline))
        ours = {pipeline.place for pipeline in owned}
        recorded = await self._unowned(group, topic)
        for queue in recorded.queues:
            if queue.place not in ours:  # one may have been handed over meanwhile
                await add(queue.place, queue.last.paused, queue.row)
        rows = (row() for _, _, row in first)
        return Listed([row for row in rows if row["paused"]], recorded.unanswered)

    async def show(self, group: str, topic: str, text: str) -> Listed:
        """Return a key in every owned queue where it is unfinished, parked or paused, and in queues
        without an owner where it is parked or paused.
        """
        found = []
        for parking in self._parkings(group, topic):
            verbs = KeyVerbs(self._context, parking)
            row = verbs.row(verbs.named(text))
            if row["state"] != "none" or row["paused"]:
                found.append(row)
        recorded = await self._unowned(group, topic)
        for queue in recorded.queues:
            key = queue.named(text)
            if key in queue.last.parked or key in queue.last.paused:
                found.append(queue.row(key))
        return Listed(found, recorded.unanswered)

    async def history(self, group: str, topic: str, text: str, limit: int) -> Listed:
        """Return recent events of a key, oldest first.

        These are failures since this proxy acquired the queue, and audit records. Raises
        Unavailable if the audit topic cannot be read.
        """
        found = [
            row
            for parking in self._parkings(group, topic)
            for row in _events(parking, KeyVerbs(self._context, parking).named(text))
        ]
        wish = AuditWish(limit=limit, group=group, topic=topic, target=known_as(text))
        try:
            page = await self._context.audit.read(wish)
        except RemotingError as error:
            raise Unavailable(f"the audit topic cannot be read: {error}") from None
        for record in page.records:
            change = record.change
            found.append(
                {
                    "at_ms": record.at_ms,
                    "queue": None,
                    "what": change.verb if record.phase == "begin" else f"{change.verb} ended",
                    "offset": None,
                    "attempt": None,
                    "detail": record.failed or change.reason,
                    "by": change.actor,
                }
            )
        return Listed(events_in_order(found)[-limit:], page.unanswered)

    # ---- inside ---------------------------------------------------------------------------------

    async def _unowned(self, group: str, topic: str) -> RecordedQueues:
        owned = [each.pipeline.queue for each in self._parkings(group, topic)]
        place = Group(group), Topic(topic)
        return await self._shared.of(
            place, lambda: self._recorded.queues(*place, but=owned), basis=frozenset(owned)
        )

    def _pipelines(self, group: str, topic: str) -> Iterator[ParkingPipeline]:
        return (parking.pipeline for parking in self._parkings(group, topic))

    def _parkings(self, group: str, topic: str) -> list[Parking]:
        ownership = self._ownerships.get(Group(group))
        if ownership is None or not ownership.consumes(topic):
            raise UnknownName(f"this proxy has no group {group!r} with a topic {topic!r}")
        return list(ownership.parkings(topic))


def _view(pipeline: ParkingPipeline, key: bytes) -> KeyView:
    return KeyViews(pipeline, now_ns=now_ns(), wall_ms=wall_ms()).of(key)


def _row(pipeline: ParkingPipeline, key: bytes) -> dict[str, Any]:
    return _view(pipeline, key).row()


def _events(parking: Parking, key: bytes) -> Iterator[dict[str, Any]]:
    pipeline = parking.pipeline
    for each in (pipeline, pipeline.twin):
        for event in () if each is None else each.events.of(key):
            yield {
                "at_ms": wall_ms() - (now_ns() - event.at_ns) // MS,
                "queue": None if each is None else each.place,
                "what": event.what,
                "offset": event.offset,
                "attempt": event.attempt,
                "detail": event.detail,
                "by": None,
            }
