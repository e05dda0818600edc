"""What is done again and again for each queue that this proxy owns, at each broker by itself.

A broker that is slow, or does not answer, has its next round when the last one there has ended; the
rounds of all others go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog


class Work(NamedTuple):
    """What one round *does* with each queue in which it is *due*. *at_rest* is told of the others.

    *what* names it in the log.
    """

    what: str
    do: Callable[[GroupLane, QueuePipeline], Awaitable[object]]
    due: Callable[[QueuePipeline], bool]
    noisy: NoisyLog
    at_rest: Callable[[QueuePipeline], None] | None = None


class BrokerRounds:
    """Rounds of one kind, one at a time at each broker."""

    def __init__(self, what: str) -> None:
        """*what* names their tasks."""
        self._what = what
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._begun: Counter[str] = Counter()

    def begun(self, broker: str) -> int:
        """How many rounds were begun at *broker*."""
        return self._begun[broker]

    def begin(
        self, broker: str, one: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
    ) -> None:
        """Begin a round at *broker*, unless one is under way: *one*, with *arguments*."""
        if (task := self._under_way.get(broker)) is not None and not task.done():
            return
        self._begun[broker] += 1
        self._under_way[broker] = spawn(one(*arguments), name=f"{self._what} at {broker}")

    async def close(self) -> None:
        """End those under way."""
        await cancel_and_wait(*self._under_way.values())


async def queue_rounds(
    lanes: Iterable[GroupLane], work: Callable[[int], Work], *, every_s: float
) -> None:
    """Do *work* every *every_s* until cancelled; *work* is given the number of the round at its
    broker, from 0 on. *lanes* is iterated anew each time.
    """
    rounds = BrokerRounds(work(0).what)
    try:
        while True:
            await asyncio.sleep(every_s)
            for broker, queues in _by_broker(lanes).items():
                rounds.begin(broker, one_round, queues, work(rounds.begun(broker)))
    finally:
        await rounds.close()


def _by_broker(lanes: Iterable[GroupLane]) -> dict[str, list[tuple[GroupLane, QueuePipeline]]]:
    """The owned queues; those that are handed over are not among them: that does all itself."""
    owned: defaultdict[str, list[tuple[GroupLane, QueuePipeline]]] = defaultdict(list)
    for lane in lanes:
        for pipeline in lane.buffer:
            if not pipeline.draining:
                owned[pipeline.queue.broker].append((lane, pipeline))
    return owned


async def one_round(queues: Sequence[tuple[GroupLane, QueuePipeline]], work: Work) -> None:
    """Do *work* at once for all *queues* in which it is due. Most queues of a proxy with thousands
    are at rest, and cost no task.

    A bug with one queue is logged, and ends nothing for the others.
    """
    results = await asyncio.gather(
        *(work.do(lane, pipeline) for lane, pipeline in queues if _is_due(pipeline, work)),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, Exception):
            work.noisy.warning("bug", f"{work.what} failed", reason=str(result), exc_info=result)


def _is_due(pipeline: QueuePipeline, work: Work) -> bool:
    try:
        if work.due(pipeline):
            return True
        if work.at_rest is not None:
            work.at_rest(pipeline)
        return False
    except Exception:
        return True  # a bug: it is seen where one with a queue is logged
