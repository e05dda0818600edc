"""What the pages live on: an overview, once or as a stream, and the figures of the last hour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import orjson
import structlog
from pydantic import Field

from broker_core.clock import wall_ms
from broker_core.tasks import cancel_and_wait, spawn
from proxy.admin.operations import EVENTS, Call, Operation, get
from proxy.admin.snapshots import GroupView
from proxy.console.events import Events, Reader
from proxy.console.pages import Pages
from proxy.console.series import COUNTERS, EVERY_S, GAUGES, Series
from proxy.downstream.port.load import Load
from proxy.errors import UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.operator.asked import Answer

#: Queues that are looked at in one go: about a millisecond of the event loop.
_AT_ONCE = 32

_log = structlog.get_logger("console")
_Values = Annotated[list[float | None], Field(description="one for each of at_ms")]


class TopicCountsView(Answer):
    """Of a topic since the proxy started, in messages."""

    delivered: int
    acked: int
    failed: int


class GroupOverview(GroupView):
    """A group with what happened to its messages here, by topic."""

    counts: dict[str, TopicCountsView]


class OverviewView(Answer):
    """One proxy at one moment (``at_ms`` since 1970): what it holds of its groups."""

    at_ms: int
    proxy: str
    http: str
    drained: str
    groups: dict[str, GroupOverview]


class SeriesView(Answer):
    """Samples of a group at this proxy, the oldest first; None where there is none. Counts are
    messages, ``delivered``, ``acked`` and ``failed`` messages a second.
    """

    group: str
    every_s: int
    at_ms: list[int]
    lag: _Values
    unfinished: _Values
    ready: _Values
    leased: _Values
    blocked: _Values
    delivered: _Values
    acked: _Values
    failed: _Values


class Console:
    """One per process: ``start``, and ``close`` before its HTTP port closes.

    *groups* gives the view of all groups, *about* the names of this proxy; pages that do not read
    what they asked for are counted in *load*.
    """

    def __init__(
        self,
        lanes: Iterable[GroupLane],
        groups: Callable[[], dict[str, Any]],
        about: Callable[[], dict[str, str]],
        load: Load,
    ) -> None:
        self._lanes = lanes
        self._groups = groups
        self._about = about
        self._load = load
        self._pages = Pages()
        self._sampling: asyncio.Task[None] | None = None
        self.series = Series()
        self.events = Events(lambda: orjson.dumps(self.overview()), on_slow=self._count_slow)

    def operations(self) -> list[Operation]:
        """What it serves."""
        return [
            *self._pages.operations(),
            get(
                "/api/overview",
                "What this proxy holds of its groups, and what happened to their messages.",
                self._overview,
                answer=OverviewView,
            ),
            get(
                "/api/events",
                "The overview as server-sent events named overview, every two seconds, for as long"
                " as they are read. Who reads too slowly is cut off.",
                self._read,
                media=EVENTS,
                errors=(503,),
            ),
            get(
                "/api/groups/{group}/series",
                "Figures of a group at this proxy in the last hour.",
                self._series,
                answer=SeriesView,
                errors=(404,),
            ),
        ]

    def start(self) -> None:
        """Take samples from now on."""
        self._sampling = spawn(self._sample(), name="console samples")

    async def close(self) -> None:
        """End all streams."""
        await cancel_and_wait(self._sampling)
        await self.events.close()

    def overview(self) -> dict[str, Any]:
        """As the API shows it."""
        counts = {lane.name: _counts(lane) for lane in self._lanes}
        groups = {
            name: {**view, "counts": counts.get(name, {})}  # type: ignore[call-overload]
            for name, view in self._groups().items()
        }
        return {"at_ms": wall_ms(), **self._about(), "groups": groups}

    async def sample(self) -> None:
        """Take one sample now. Clients have their turns meanwhile, with thousands of queues too."""
        figures: dict[str, dict[str, float]] = {}
        for lane in list(self._lanes):
            figures[lane.name] = await _figures(lane)
        self.series.add(wall_ms(), figures)

    def _count_slow(self) -> None:
        self._load.dropped["slow_reader_s"] += 1

    async def _sample(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception:  # a bug; the next one may be there
                _log.exception("a sample is missing in the charts")
            await asyncio.sleep(EVERY_S)

    async def _overview(self, _call: Call) -> dict[str, Any]:
        return self.overview()

    async def _read(self, _call: Call) -> Reader:
        return self.events.read()

    async def _series(self, call: Call) -> dict[str, Any]:
        name = call.path["group"]
        found = self.series.of(name)
        if found is None:
            raise UnknownName(f"there are no figures of a group {name[:200]!r} here")
        return {"group": name, "every_s": EVERY_S, **found}


def _counts(lane: GroupLane) -> dict[str, dict[str, int]]:
    return {
        topic: {
            "delivered": counts.delivered,
            "acked": counts.acked,
            "failed": counts.failed,
        }
        for topic, counts in lane.counts.items()
    }


async def _figures(lane: GroupLane) -> dict[str, float]:
    found = dict.fromkeys((*GAUGES, *COUNTERS), 0.0)
    for number, pipeline in enumerate(list(lane.buffer), 1):
        if not number % _AT_ONCE:
            await asyncio.sleep(0)
        if lane.settings.topic(pipeline.topic) is None:
            continue  # that of parked messages, which are the backlog of nobody
        queue = pipeline.statistics()
        found["lag"] += max(0, queue.end - queue.committed)
        for name in ("unfinished", "ready", "leased", "blocked"):
            found[name] += getattr(queue, name)
    for counts in _counts(lane).values():
        for name in COUNTERS:
            found[name] += counts[name]
    return found
