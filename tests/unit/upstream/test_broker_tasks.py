"""Periodic tasks run separately at each broker, and answers about its log are shared."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from broker_core.client import LogSpan
from broker_core.errors import BrokerError, RequestTimeout
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.records.retention import LogRange
from proxy.net.wakeup import Signal
from proxy.observe.logs import NoisyLog
from proxy.upstream.broker_tasks import BrokerTasks, Work, run_once
from proxy.upstream.key_changes import KeyChanges
from proxy.upstream.reading.refills import Refills
from proxy.upstream.records.log_ranges import LogRanges
from testkit.eventually import eventually
from testkit.pipelines import queue


async def test_a_slow_broker_skips_runs_and_no_other_does() -> None:
    tasks = BrokerTasks("look")
    done: list[str] = []

    async def look(broker: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(broker)

    for _ in range(10):
        tasks.start("slow", look, "slow", 3.5)
        tasks.start("quick", look, "quick", 0.1)
        await asyncio.sleep(1)
    assert (done.count("quick"), done.count("slow")) == (10, 2)
    assert (tasks.started("quick"), tasks.started("slow")) == (10, 3)
    await tasks.close()
    await asyncio.sleep(5)
    assert done.count("slow") == 2


class Client:
    """Answers requests about brokers' logs."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.tells_files = True

    async def log_span(self, broker: str) -> LogSpan:
        self.asked += 1
        await asyncio.sleep(3 if self.fails else 0.01)
        if self.fails:
            raise RequestTimeout(f"{broker} does not answer")
        return LogSpan(begin=0, end=self.asked)

    async def log_file_bytes(self, broker: str) -> int | None:
        if not self.tells_files:
            raise BrokerError(16, "not for you")
        return 100


def ranges(client: Client) -> LogRanges:
    return LogRanges(client)  # type: ignore[arg-type]


async def test_queues_at_the_same_moment_share_an_answer() -> None:
    client = Client()
    log = ranges(client)
    assert set(await asyncio.gather(*(log.of("b") for _ in range(50)))) == {LogRange(0, 1, 100)}
    await asyncio.sleep(1)
    assert await log.of("b") == LogRange(0, 2, 100)


async def test_callers_that_wait_for_a_silent_broker_share_its_failure() -> None:
    client = Client()
    client.fails = True
    log = ranges(client)
    async with asyncio.timeout(4):
        failures = await asyncio.gather(*(log.of("b") for _ in range(50)), return_exceptions=True)
    assert all(isinstance(each, RequestTimeout) for each in failures)
    assert client.asked == 1
    client.fails = False
    await asyncio.sleep(1)
    assert (await log.of("b")).file_bytes == 100


@pytest.mark.parametrize("times", [1, 2])
async def test_a_broker_that_hides_its_settings_is_asked_for_them_once(times: int) -> None:
    client = Client()
    client.tells_files = False
    log = ranges(client)
    for _ in range(times):
        assert (await log.of("b")).file_bytes is None
        client.tells_files = True
        await asyncio.sleep(1)


async def test_work_that_ends_as_cancelled_ends_no_round_before_the_others() -> None:
    done: list[str] = []

    async def do(_lane: Any, pipeline: Any) -> None:
        await asyncio.sleep(1 if pipeline == "cancelled" else 2)
        if pipeline == "cancelled":  # as by a request that it shares with a task that is cancelled
            raise asyncio.CancelledError
        done.append(pipeline)

    lane: Any = SimpleNamespace(recent=SimpleNamespace(note=lambda *_: None))
    work = Work("look", do, lambda _: True, NoisyLog(structlog.get_logger("look")))
    queues: list[Any] = [(lane, "cancelled"), (lane, "good")]
    await run_once(queues, work)
    assert done == ["good"]


class ChangingQueue:
    """A queue whose order key is to change, or that *fails* when it is asked."""

    topic, place = "orders", "broker-a_0"
    draining = closed = False

    def __init__(self, *, fails: bool = False) -> None:
        self.queue = queue(0)
        self.origin = SimpleNamespace(doubtful=False)
        self.keys = SimpleNamespace(planned=False, record=SimpleNamespace(rule="KEY", since=0))
        self.jobs = SimpleNamespace(change=None)
        self.planned = 0
        self._fails = fails

    @property
    def key_change_due(self) -> bool:
        if self._fails:
            raise ValueError("a bug")
        return not self.planned

    def plan_key_change(self) -> None:
        self.planned += 1

    def key_change_recorded(self) -> None:
        """Change nothing: the records are not under test."""


async def test_a_bug_with_one_queue_ends_no_change_of_an_order_key() -> None:
    class Recorder:
        async def record(self, _lane: Any, _pipeline: Any) -> None:
            """Record nothing."""

    bad, good = ChangingQueue(fails=True), ChangingQueue()
    lane: Any = SimpleNamespace(
        name="billing", buffer=[bad, good], recent=(), apply_effects=lambda *_: None
    )
    context: Any = SimpleNamespace(recorder=Recorder(), settled=Signal())
    changes = KeyChanges(context, Refills(context))
    task = spawn(changes.run([lane]), name="order keys")
    await eventually(lambda: good.planned == 1)
    lane.buffer.append(later := ChangingQueue())
    await eventually(lambda: later.planned == 1)
    await cancel_and_wait(task)
