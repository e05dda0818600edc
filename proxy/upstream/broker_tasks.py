"""Periodic work on owned queues, run separately at each broker.

A slow or unreachable broker delays only its own next run.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from broker_core.clock import now_ns
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog

#: Number of queues up to which periodic work looks at all of them, and the longest time between two
#: looks at one of more.
FEW_QUEUES, WHOLE_NS = 256, 30_000_000_000


class Work(NamedTuple):
    """Periodic work: *do* for each queue that is *due*, *not_due* for the others.

    *what* names it in the log.
    """

    what: str
    do: Callable[[GroupLane, QueuePipeline], Awaitable[object]]
    due: Callable[[QueuePipeline], bool]
    noisy: NoisyLog
    not_due: Callable[[QueuePipeline], None] | None = None


class BrokerTasks:
    """Tasks of one kind, at most one at a time per broker."""

    def __init__(self, what: str) -> None:
        """*what* names the tasks."""
        self._what = what
        self._running: dict[str, asyncio.Task[None]] = {}
        self._started: Counter[str] = Counter()

    @property
    def running(self) -> bool:
        """Whether a task is running."""
        return any(not task.done() for task in self._running.values())

    def started(self, broker: str) -> int:
        """Return the number of tasks started at *broker*."""
        return self._started[broker]

    def start(
        self, broker: str, one: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
    ) -> None:
        """Start *one* with *arguments* at *broker*, unless a task is running there."""
        if (task := self._running.get(broker)) is not None and not task.done():
            return
        self._started[broker] += 1
        self._running[broker] = spawn(one(*arguments), name=f"{self._what} at {broker}")

    async def close(self) -> None:
        """Cancel the running tasks."""
        await cancel_and_wait(*self._running.values())


async def run_periodically(
    lanes: Iterable[GroupLane], work: Callable[[int], Work], *, every_s: float
) -> None:
    """Run the work returned by *work* every *every_s* until cancelled.

    *work* receives the number of the run at its broker, from 0. *lanes* is iterated again each
    time.
    """
    tasks = BrokerTasks(work(0).what)
    selection = Selection(lanes)
    try:
        while True:
            await asyncio.sleep(every_s)
            for broker, queues in _by_broker(selection.take()).items():
                tasks.start(broker, run_once, queues, work(tasks.started(broker)))
    finally:
        await tasks.close()


class Selection:
    """The queues that periodic work looks at: all of them, or with very many only those that
    changed lately, and all every ``WHOLE_NS``.
    """

    def __init__(self, lanes: Iterable[GroupLane]) -> None:
        self._lanes = lanes
        self._whole_ns: int | None = None

    def take(self) -> Iterator[tuple[GroupLane, QueuePipeline]]:
        """Yield the queues of the next run."""
        now, lanes = now_ns(), list(self._lanes)
        whole = self._whole_ns is None or now - self._whole_ns >= WHOLE_NS
        if whole or sum(len(lane.buffer) for lane in lanes) <= FEW_QUEUES:
            self._whole_ns = now
            for lane in lanes:
                for pipeline in list(lane.buffer):
                    yield lane, pipeline
            return
        for lane in lanes:
            if lane.recent:
                for pipeline in lane.recent.since(now):
                    if pipeline.closed:
                        lane.recent.forget(pipeline)
                    else:
                        yield lane, pipeline


def _by_broker(
    queues: Iterable[tuple[GroupLane, QueuePipeline]],
) -> dict[str, list[tuple[GroupLane, QueuePipeline]]]:
    """Return *queues* by broker, without those whose last record is made.

    While a queue drains, its work goes on: handlers may take long, and a crash must repeat no more
    than at other times.
    """
    owned: defaultdict[str, list[tuple[GroupLane, QueuePipeline]]] = defaultdict(list)
    for lane, pipeline in queues:
        if not pipeline.has_ended:
            owned[pipeline.queue.broker].append((lane, pipeline))
    return owned


async def run_once(queues: Sequence[tuple[GroupLane, QueuePipeline]], work: Work) -> None:
    """Run *work* concurrently for all *queues* that are due.

    Most queues of a proxy with thousands are at rest and cost no task. A bug with one queue is
    logged and does not affect the others; nor does one whose work ends as cancelled.
    """
    await asyncio.gather(
        *(_done(lane, pipeline, work) for lane, pipeline in queues if _is_due(pipeline, work)),
        return_exceptions=True,
    )


async def _done(lane: GroupLane, pipeline: QueuePipeline, work: Work) -> None:
    with work.noisy.confined("bug", f"{work.what} failed"):
        lane.recent.note(pipeline, now_ns())  # it may fail, and is tried again
        await work.do(lane, pipeline)


def _is_due(pipeline: QueuePipeline, work: Work) -> bool:
    try:
        if work.due(pipeline):
            return True
        if work.not_due is not None:
            work.not_due(pipeline)
        return False
    except Exception:
        return True  # a bug: the run logs it with its queue
