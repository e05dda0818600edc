"""Plans reads of a topic with many queues by the methods that a Spark driver calls."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from bench.cpu import CpuMeter
from bench.site import Site, open_site, running_brokers
from broker_core.client import BrokerClient
from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from proxy.errors import OrderlaneError
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.data_source import BatchReader, StreamReader
from thin_client.spark.options import ReadOptions
from thin_client.spark.records import column_names

_TOPIC = "spark"
_SENDS_AT_ONCE, _TIMEOUT_S = 16, 60.0
#: Longer than a stream waits between two requests.
_PACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One planning: the seconds that the driver waited, and the processor time of all."""

    tasks: int
    seconds: float
    driver_s: float
    proxy_s: float
    broker_s: float


@dataclass(frozen=True, slots=True)
class _Plan:
    """*queues*: those that the plan covers."""

    queues: int
    tasks: int = 0


_Act = Callable[[], _Plan]


@dataclass(slots=True)
class Planner:
    """Plans reads of the topic through the proxy at *servers*, each time as a new query.

    *stored_ms*: a time before the first message.
    """

    queues: int
    servers: str
    stored_ms: int
    meter: CpuMeter

    def run(self, arm: str) -> Planned:
        """Plan once. Raises OrderlaneError unless the plan has all queues."""
        prepared = {
            "ranges": self._ranges,
            "batch": self._batch,
            "first": self._first,
            "next": self._next,
            "report": self._report,
            "times": self._times,
        }
        with prepared[arm]() as act:
            before, cpu_s, began_s = self.meter.read(), time.process_time(), time.perf_counter()
            plan = act()
            seconds, driver_s = time.perf_counter() - began_s, time.process_time() - cpu_s
            used = {name: used_s - before[name] for name, used_s in self.meter.read().items()}
        if plan.queues != self.queues:
            raise OrderlaneError(
                f"bench spark-planning: {arm} has {plan.queues} queues, not {self.queues}"
            )
        return Planned(plan.tasks, seconds, driver_s, used["proxy"], used["broker"])

    def _options(self, *, streaming: bool, **more: str) -> ReadOptions:
        given = {"servers": self.servers, "group": _TOPIC, "subscribe": _TOPIC, **more}
        return ReadOptions.parse(given, streaming=streaming)

    @contextmanager
    def _ranges(self) -> Iterator[_Act]:
        with closing(BulkClient(self._options(streaming=False).connecting)) as client:
            yield lambda: _Plan(len(client.ranges([_TOPIC])))

    @contextmanager
    def _batch(self) -> Iterator[_Act]:
        yield partial(self._tasks_of, self._options(streaming=False))

    @contextmanager
    def _times(self) -> Iterator[_Act]:
        since = self._options(streaming=False, startingTimestamp=str(self.stored_ms))
        yield partial(self._tasks_of, since)

    def _tasks_of(self, options: ReadOptions) -> _Plan:
        return _passed_on(BatchReader(options, _columns()).partitions())

    @contextmanager
    def _stream(self) -> Iterator[StreamReader]:
        options = self._options(streaming=True, startingOffsets="earliest")
        reader = StreamReader(options, _columns())
        try:
            yield reader
        finally:
            reader.stop()

    @contextmanager
    def _first(self) -> Iterator[_Act]:
        with self._stream() as reader:

            def act() -> _Plan:
                begun = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
                return _Plan(len(json.loads(json.dumps(begun))[_TOPIC]))

            yield act

    @contextmanager
    def _next(self) -> Iterator[_Act]:
        """Plan the micro-batch after the first one, about which there is nothing to report."""
        with self._stream() as reader:
            begun = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
            time.sleep(_PACE_S)

            def act() -> _Plan:
                end = json.loads(json.dumps(reader.latestOffset(begun, ReadAllAvailable())))
                return _passed_on(reader.partitions(begun, end))

            yield act

    @contextmanager
    def _report(self) -> Iterator[_Act]:
        with closing(BulkClient(self._options(streaming=True).connecting)) as client:
            ends = {_TOPIC: {each.qid: each.end for each in client.ranges([_TOPIC])}}

            def act() -> _Plan:
                if (why := client.report(ends)) is not None:
                    raise OrderlaneError(f"bench spark-planning: {why}")
                return _Plan(len(ends[_TOPIC]))

            yield act


def _passed_on(tasks: Sequence[Any]) -> _Plan:
    """Pickle *tasks*, as Spark does."""
    passed = [pickle.loads(pickle.dumps(each)) for each in tasks]
    return _Plan(sum(len(each.value.parts) for each in passed), len(passed))


def _columns() -> tuple[str, ...]:
    return tuple(column_names(include_headers=False))


@contextmanager
def running_planner(broker: str, queues: int, say: Callable[[str], None]) -> Iterator[Planner]:
    """Start brokers and a proxy, and store a message in each of *queues* queues."""
    with (
        tempfile.TemporaryDirectory(prefix="orderlane-bench-") as name,
        running_brokers(broker, Path(name) / "broker", flush="async") as brokers,
        open_site(brokers, Path(name) / "site", _TOPIC, queues=queues, histories=False) as site,
    ):
        stored_ms = time.time_ns() // 1_000_000
        time.sleep(0.01)
        began_s = time.monotonic()
        asyncio.run(_store(site))
        say(f"a message in each of {queues:,} queues, in {time.monotonic() - began_s:.0f} s")
        proxy = site.start_proxy()
        meter = CpuMeter({"proxy": proxy.child.process.pid, "broker": brokers.broker_pid})
        yield Planner(queues, proxy.thrift, stored_ms, meter)


async def _store(site: Site) -> None:
    client = BrokerClient(nameservers=[site.brokers.nameserver], client_id=f"bench@{os.getpid()}")
    await client.start()
    try:
        queues = iter(await client.queues(Topic(site.name), fresh=True))

        async def fill() -> None:
            for queue in queues:
                message = OutgoingMessage(queue.topic, b"x")
                await client.send_batch(queue, [message], timeout_s=_TIMEOUT_S)

        await asyncio.gather(*(fill() for _ in range(_SENDS_AT_ONCE)))
    finally:
        await client.close()
