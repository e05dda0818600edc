"""Data for the console's pages: an overview, once or as a stream, and figures of the last hour."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any

import orjson
import structlog
from pydantic import Field

from broker_core.clock import now_ns, wall_ms
from broker_core.tasks import Turns, cancel_and_wait, spawn
from proxy.admin.operations import EVENTS, Call, Operation, get
from proxy.admin.snapshots import GroupView, Unowned
from proxy.console.events import Events, Reader
from proxy.console.pages import Pages
from proxy.console.series import COUNTERS, EVERY_S, GAUGES, Series
from proxy.core.group.known_queue import QueueOwner
from proxy.downstream.port.load import Load
from proxy.errors import UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.operator.request_models import Answer

#: Queues sampled without a pause: about one millisecond of the event loop.
_AT_ONCE = 32

_log = structlog.get_logger("console")
_noisy = NoisyLog(_log)
_Values = Annotated[list[float | None], Field(description="one value per entry of at_ms")]


class TopicCountsView(Answer):
    """Messages of a topic since the proxy started."""

    delivered: int
    acked: int
    failed: int


class GroupOverview(GroupView):
    """A group with its message counts at this proxy, by topic."""

    counts: dict[str, TopicCountsView]


class OverviewView(Answer):
    """The state of one proxy's groups at one time (``at_ms`` since 1970). ``brokers_away``: errors
    of brokers that did not answer at the last look, by name.
    """

    at_ms: int
    proxy: str
    http: str
    drained: str
    brokers_away: dict[str, str]
    groups: dict[str, GroupOverview]


class SeriesView(Answer):
    """Samples of a group at this proxy, oldest first; an unknown value is null. ``lag``,
    ``unfinished`` and ``blocked`` include queues without an owner.

    ``delivered``, ``acked`` and ``failed`` are messages per second, all others messages.
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
    """The console's data, one per process. Call ``close`` before the HTTP port closes.

    *groups* returns the view of all groups, *about* the names of this proxy. Pages that read too
    slowly are counted in *load*. Samples include what is known of *unowned* queues.
    """

    def __init__(
        self,
        lanes: Iterable[GroupLane],
        groups: Callable[[], Awaitable[dict[str, Any]]],
        about: Callable[[], dict[str, Any]],
        load: Load,
        unowned: Unowned | None = None,
    ) -> None:
        self._lanes = lanes
        self._unowned = unowned
        self._groups = groups
        self._about = about
        self._load = load
        self._pages = Pages()
        self._sampling: asyncio.Task[None] | None = None
        self.series = Series()
        self._at_rest: dict[str, dict[str, float]] = {}  # gauges of groups without changes
        self.events = Events(self._encoded, on_slow=self._count_slow)

    def operations(self) -> list[Operation]:
        """Return the console's HTTP operations."""
        return [
            *self._pages.operations(),
            get(
                "/api/overview",
                "State and message counts of all groups at this proxy.",
                self._overview,
                answer=OverviewView,
            ),
            get(
                "/api/events",
                "The overview every two to eight seconds, as server-sent events named overview."
                " Slow readers are disconnected.",
                self._read,
                media=EVENTS,
                errors=(503,),
            ),
            get(
                "/api/groups/{group}/series",
                "Figures of a group at this proxy over the last hour.",
                self._series,
                answer=SeriesView,
                errors=(404,),
            ),
        ]

    def start(self) -> None:
        """Start sampling."""
        self._sampling = spawn(self._sample(), name="console samples")

    async def close(self) -> None:
        """End all streams."""
        await cancel_and_wait(self._sampling)
        await self.events.close()

    async def overview(self) -> dict[str, Any]:
        """Return the overview as the API serves it."""
        counts = {lane.name: _counts(lane) for lane in self._lanes}
        groups = {
            name: {**view, "counts": counts.get(name, {})}  # type: ignore[call-overload]
            for name, view in (await self._groups()).items()
        }
        return {"at_ms": wall_ms(), **self._about(), "groups": groups}

    async def _encoded(self) -> bytes:
        return orjson.dumps(await self.overview())

    async def sample(self) -> None:
        """Take one sample, yielding to other tasks even with thousands of queues."""
        figures: dict[str, dict[str, float]] = {}
        at_rest: dict[str, dict[str, float]] = {}
        for lane in list(self._lanes):
            with _noisy.confined(lane.name, "no sample of a group taken", group=lane.name):
                known = None if lane.recent else self._at_rest.get(lane.name)
                gauges = await _gauges(lane) if known is None else known
                if not (lane.recent or math.isnan(gauges["lag"])):  # until something changes
                    at_rest[lane.name] = gauges
                sampled = {**gauges, **_totals(lane)}
                if self._unowned is not None:
                    _add_unowned(sampled, self._unowned, lane)
                figures[lane.name] = sampled
        self._at_rest = at_rest
        self.series.add(wall_ms(), figures, at_ns=now_ns())

    def _count_slow(self) -> None:
        self._load.dropped["slow_reader_s"] += 1

    async def _sample(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception:  # a bug; the next sample may succeed
                _log.exception("sampling for the console's charts failed")
            await asyncio.sleep(EVERY_S)

    async def _overview(self, _call: Call) -> dict[str, Any]:
        return await self.overview()

    async def _read(self, _call: Call) -> Reader:
        return self.events.read()

    async def _series(self, call: Call) -> dict[str, Any]:
        name = call.path["group"]
        found = self.series.of(name)
        if found is None:
            raise UnknownName(f"this proxy has no figures of group {name[:200]!r}")
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


def _totals(lane: GroupLane) -> dict[str, float]:
    found = dict.fromkeys(COUNTERS, 0.0)
    for counts in _counts(lane).values():
        for name in COUNTERS:
            found[name] += counts[name]
    return found


def _add_unowned(sample: dict[str, float], unowned: Unowned, lane: GroupLane) -> None:
    """Add the figures of queues without an owner to those of owned ones; NaN: unknown."""
    known = [each for each in unowned.of(lane) if each.owned is not QueueOwner.ELSEWHERE]
    for name in ("lag", "unfinished", "blocked"):
        values = [getattr(each, name) for each in known]
        if unowned.missed(lane) or None in values:
            sample[name] = math.nan
        else:
            sample[name] += sum(values)


async def _gauges(lane: GroupLane) -> dict[str, float]:
    found = dict.fromkeys(GAUGES, 0.0)
    turns = Turns(_AT_ONCE)
    for pipeline in list(lane.buffer):
        await turns.step()
        if lane.settings.topic(pipeline.topic) is None:
            continue  # a twin with parked messages does not count as lag
        queue = pipeline.statistics()
        lag = max(0, queue.end - queue.committed)
        found["lag"] += math.nan if queue.read_trouble else lag  # the broker may have more by now
        for name in ("unfinished", "ready", "leased", "blocked"):
            found[name] += getattr(queue, name)
    return found
