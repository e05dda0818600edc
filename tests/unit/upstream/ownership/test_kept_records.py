"""The checks of ownership records: which queues are looked at, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from broker_core.names import Group, QueueName, Topic
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.retention import LogRange
from proxy.lane.group_lane import GroupLane
from proxy.upstream.ownership.kept_records import KeptRecords
from testkit.eventually import eventually
from testkit.lanes import group_settings, make_lane
from testkit.pipelines import pipeline, queue


class Site:
    """A proxy's recorder, log and client, with routes of the topics *known*."""

    def __init__(self, *lanes: GroupLane, known: tuple[str, ...] = ("orders",)) -> None:
        self.known = set(known)
        self.watched: list[QueueName] = []
        self.asked: list[Topic] = []
        self.bad: QueuePipeline | None = None
        context: Any = SimpleNamespace(
            client=self,
            recorder=self,
            log=SimpleNamespace(ranges=self),
            reads=SimpleNamespace(number=1),
            away="",
        )
        ownerships: Any = {lane.name: self for lane in lanes}
        self.records = KeptRecords(context, lanes, ownerships)

    def knows_route(self, topic: Topic) -> bool:
        return topic in self.known

    async def queues(self, topic: Topic) -> list[QueueName]:
        if topic not in self.known:
            self.asked.append(topic)
            await asyncio.sleep(3600)
        return []

    def owned(self, _queue: QueueName) -> None:
        """Own no queue."""

    async def of(self, _broker: str) -> LogRange:
        return LogRange(begin=1 << 30, end=1 << 40, file_bytes=1 << 30)

    def watch(self, watched: QueuePipeline, _log: LogRange) -> bool:
        if watched is self.bad:
            raise ValueError("a bug")
        self.watched.append(watched.queue)
        return True


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[Site]:
    task = spawn(site.records.run(), name="kept records")
    yield site
    assert not task.done()
    await cancel_and_wait(task)


def lane_with(*queues: QueuePipeline, group: str = "billing", **settings: Any) -> GroupLane:
    lane = make_lane(group_settings(group, **settings))
    for each in queues:
        lane.add(each)
    return lane


async def test_a_nameserver_that_does_not_answer_delays_no_check_of_a_queue() -> None:
    lane = lane_with(pipeline(of=queue(0)), topics=("orders", "a", "b"))
    async with running(Site(lane)) as site:
        await eventually(lambda: len(site.watched) >= 3)
        assert site.asked == ["a"], "one question at a time"


async def test_a_bug_with_one_queue_or_group_ends_no_check_of_another() -> None:
    bad, good = pipeline(of=queue(0)), pipeline(of=queue(1))

    class Faulty:
        """A group that has a bug."""

        name = Group("faulty")

        @property
        def buffer(self) -> list[QueuePipeline]:
            raise ValueError("a bug")

    faulty: Any = Faulty()
    site = Site(faulty, lane_with(bad, good))
    site.bad = bad
    async with running(site):
        await eventually(lambda: site.watched == [good.queue] * 2)
