"""The arms of ``bench.spark_kafka``: what Spark does with orderlane, with Kafka, and in memory."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pyspark import __version__ as spark_version
from pyspark.errors import PySparkException

from bench import client_writer
from bench.client_writer import KEYS, Share
from bench.cpu import cpu_s
from bench.frame.peer import Work
from bench.peers.backlog import backlog_of
from bench.peers.java_programs import jar_files, version_in
from bench.peers.kafka_node import KafkaNode, kafka_node
from bench.site import Brokers, open_site, running_brokers
from bench.spark_comparison import CLIENT, KAFKA, MEMORY, OURS, Plan, Run
from bench.spark_sources import ArrowSource
from broker_core.client import BrokerClient
from broker_core.names import Topic
from proxy.errors import OrderlaneError
from testkit.spark_site import spark_session
from thin_client.spark.jobs.archive import archive

_TOPIC = "spark"
#: Micro-batches of a stream, and the share of a queue before the rows of a filtered read.
_BATCHES, _BEFORE = 5, 0.9
_PROCESSES, _HEAP = 2, "4g"
#: Names of Java's errors if the module for Kafka is one for another version of Spark.
_MISFITS = ("NoSuchMethod", "NoClassDef", "ClassNotFound", "AbstractMethod", "IncompatibleClass")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One run: *act* is timed, and its rate is that of *rows*; *check* returns a number of rows
    that has to be *expected*.
    """

    act: Callable[[], object]
    rows: int
    check: Callable[[], int]
    expected: int


@dataclass(slots=True)
class Arms:
    """Runs each operation with each arm, in *spark*.

    *pids*: processes, by the arm that they serve; *lengths*: rows in each queue of the topic.
    """

    spark: Any
    plan: Plan
    folder: Path
    servers: str
    brokers: Brokers
    node: KafkaNode
    pids: Mapping[str, Sequence[int]]
    clients: Sequence[ProcessPoolExecutor]
    lengths: Sequence[int]
    _numbers: Iterator[int] = field(default_factory=count)
    _cached: dict[str, Any] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, str]:
        """The versions of what is compared."""
        return {
            "spark": spark_version,
            "spark-sql-kafka": self.plan.source_version,
            "kafka": version_in("kafka-server"),
        }

    def run(self, operation: str, arm: str, number: int) -> Run:
        """Do *operation* once; in a round below 0 also check its rows. Raises OrderlaneError."""
        place = self.folder / f"run-{next(self._numbers)}"
        prepared = self._prepared(operation, arm, place)
        pids = self.pids.get(arm, ())
        before_s, began_s = sum(map(cpu_s, pids)), time.perf_counter()
        prepared.act()
        took_s = time.perf_counter() - began_s
        used_s = sum(map(cpu_s, pids)) - before_s
        if number < 0 and (found := prepared.check()) != prepared.expected:
            raise OrderlaneError(
                f"bench spark: {operation} with {arm} has {found:,} rows, not {prepared.expected:,}"
            )
        shutil.rmtree(place, ignore_errors=True)
        each_us = round(used_s / prepared.rows * 1e6, 3) if pids else None
        return Run(operation, arm, number, round(prepared.rows / took_s), each_us)

    def check_source(self) -> None:
        """Raise OrderlaneError unless Spark's module for Kafka runs."""
        try:
            self._loaded(KAFKA).limit(1).collect()
        except PySparkException as error:
            if not any(name in str(error) for name in _MISFITS):
                raise
            raise OrderlaneError(
                f"bench spark: the module for Kafka of Spark {self.plan.source_version} does not"
                f" run with PySpark {spark_version}: give another version of it by"
                " --source-version, or install the PySpark of this version"
            ) from None

    def _prepared(self, operation: str, arm: str, place: Path) -> _Prepared:
        rows = self.plan.rows
        if operation == "read":
            return _Prepared(self._read(arm), rows, self._loaded(arm).count, rows)
        if operation == "filtered":
            first = int(_BEFORE * min(self.lengths))
            only = f"offset >= {first}"
            expected = sum(max(0, length - first) for length in self.lengths)
            check = self._loaded(arm).where(only).count
            return _Prepared(self._read(arm, only), rows, check, expected)
        if operation == "stream":
            return self._stream(arm, place)
        if operation == "archive":
            path = str(place / "archive")
            act = self._archive(arm, place, path)
            return _Prepared(act, rows, lambda: self.spark.read.parquet(path).count(), rows)
        return self._write(arm)

    # ---- reading --------------------------------------------------------------------------------

    def _source(self, arm: str) -> tuple[str, dict[str, str]]:
        """Return the format and the options of a source."""
        if arm == OURS:
            where = {"servers": self.servers, "group": _TOPIC}
            return "orderlane", {**where, "subscribe": _TOPIC, "startingOffsets": "earliest"}
        if arm == KAFKA:
            where = {"kafka.bootstrap.servers": self.node.address}
            return "kafka", {**where, "subscribe": _TOPIC, "startingOffsets": "earliest"}
        sizes = (self.plan.rows, self.plan.queues, self.plan.body_bytes)
        names = ("rows", "partitions", "bytes")
        return ArrowSource.name(), dict(zip(names, map(str, sizes), strict=True))

    def _loaded(self, arm: str, **more: str) -> Any:
        name, options = self._source(arm)
        return self.spark.read.format(name).options(**{**options, **more}).load()

    def _read(self, arm: str, only: str | None = None) -> Callable[[], object]:
        """Return the read of all rows, or *only* of those that meet a condition."""

        def act() -> None:
            rows = self._loaded(arm)
            chosen = rows if only is None else rows.where(only)
            chosen.write.format("noop").mode("overwrite").save()

        return act

    def _stream(self, arm: str, place: Path) -> _Prepared:
        read: list[int] = []
        rows = self._streamed(arm)

        def act() -> None:
            query = _started(rows.writeStream.format("noop"), place)
            query.awaitTermination()
            read.append(sum(each["numInputRows"] for each in query.recentProgress))

        return _Prepared(act, self.plan.rows, lambda: read[-1], self.plan.rows)

    def _streamed(self, arm: str) -> Any:
        name, options = self._source(arm)
        return self.spark.readStream.format(name).options(**options, **self._limit()).load()

    def _limit(self) -> dict[str, str]:
        return {"maxOffsetsPerTrigger": str(-(-self.plan.rows // _BATCHES))}

    # ---- archives -------------------------------------------------------------------------------

    def _archive(self, arm: str, place: Path, path: str) -> Callable[[], object]:
        if arm == OURS:
            _, options = self._source(arm)
            return lambda: archive(self.spark, {**options, **self._limit()}, path)
        if arm == MEMORY:
            rows = self._same_rows()
            return lambda: rows.write.parquet(path)
        dated = self._streamed(arm).selectExpr("*", "CAST(timestamp AS DATE) AS date")
        writer = dated.writeStream.format("parquet").partitionBy("date").option("path", path)
        return lambda: _started(writer, place).awaitTermination()

    def _same_rows(self) -> Any:
        """Return the rows of the topic, in memory."""
        if "topic" not in self._cached:
            self._cached["topic"] = _kept(self._loaded(OURS))
        return self._cached["topic"]

    # ---- writing --------------------------------------------------------------------------------

    def _write(self, arm: str) -> _Prepared:
        topic, queues, rows = f"written-{next(self._numbers)}", self.plan.queues, self.plan.written
        if arm == KAFKA:
            self.node.store(Work(messages=0, keys=1, queues=queues, topic=topic))
            options = {"kafka.bootstrap.servers": self.node.address, "topic": topic}
            act = self._saved("kafka", options)
            return _Prepared(act, rows, self._loaded(KAFKA, subscribe=topic).count, rows)
        self.brokers.create_topic(topic, queues=queues)
        if arm == CLIENT:
            act = self._by_clients(topic)
        else:
            act = self._saved("orderlane", {"servers": self.servers, "topic": topic})
        return _Prepared(act, rows, lambda: self._stored(topic), rows)

    def _saved(self, name: str, options: Mapping[str, str]) -> Callable[[], object]:
        rows = self._rows_to_write()
        return lambda: rows.write.format(name).options(**options).mode("append").save()

    def _rows_to_write(self) -> Any:
        """Return the rows, in memory: those of a key in one task, as for its order."""
        if "written" not in self._cached:
            tasks, size = self.plan.queues, self.plan.body_bytes
            text = f"substr(repeat(sha2(CAST(id AS STRING), 256), {size // 64 + 1}), 1, {size})"
            rows = self.spark.range(0, self.plan.written, numPartitions=tasks).selectExpr(
                f"CONCAT('key-', id % {KEYS}) AS key", f"CAST({text} AS BINARY) AS value"
            )
            self._cached["written"] = _kept(rows.repartition(tasks, "key"))
        return self._cached["written"]

    def _by_clients(self, topic: str) -> Callable[[], object]:
        plan = self.plan
        shares = [
            Share(number, len(self.clients), plan.written, plan.body_bytes)
            for number in range(len(self.clients))
        ]
        for client, share in zip(self.clients, shares, strict=True):
            client.submit(client_writer.prepare, share).result()

        def act() -> None:
            sends = [
                client.submit(client_writer.send, share, self.servers, topic)
                for client, share in zip(self.clients, shares, strict=True)
            ]
            for each in sends:
                each.result()

        return act

    def _stored(self, topic: str) -> int:
        """Return the number of messages in *topic*."""

        async def ask() -> int:
            nameservers = [self.brokers.nameserver]
            client = BrokerClient(nameservers=nameservers, client_id="bench@count")
            await client.start()
            try:
                queues = await client.queues(Topic(topic), fresh=True)
                return sum([await client.max_offset(queue) for queue in queues])
            finally:
                await client.close()

        return asyncio.run(ask())


@contextmanager
def running_arms(plan: Plan, say: Callable[[str], None]) -> Iterator[Arms]:
    """Start a gateway, a node of Kafka, and Spark; store the rows in both. Raises OrderlaneError
    unless all can run.
    """
    jars = jar_files("spark-kafka", {"spark.version": plan.source_version})
    work = Work(
        messages=plan.rows,
        keys=KEYS,
        queues=plan.queues,
        body_bytes=plan.body_bytes,
        topic=_TOPIC,
        seed=plan.seed,
    )
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="orderlane-bench-")
        folder = Path(stack.enter_context(temporary))
        node = stack.enter_context(kafka_node(folder / "kafka"))
        node.store(work)
        brokers = stack.enter_context(
            running_brokers(plan.broker, folder / "broker", flush="async")
        )
        site = stack.enter_context(
            open_site(brokers, folder / "site", _TOPIC, queues=plan.queues, histories=False)
        )
        site.preload(backlog_of(work))
        say(f"{plan.rows:,} rows are stored in Kafka and in orderlane")
        proxy = site.start_proxy()
        ours = (proxy.child.process.pid, brokers.broker_pid)
        spawning = multiprocessing.get_context("spawn")
        arms = Arms(
            stack.enter_context(_session(folder, jars)),
            plan,
            folder,
            proxy.thrift,
            brokers,
            node,
            {OURS: ours, CLIENT: ours, KAFKA: (node.pid,)},
            [stack.enter_context(ProcessPoolExecutor(1, spawning)) for _ in range(_PROCESSES)],
            [
                sum(1 for _ in backlog_of(work).keys_in(queue, plan.queues))
                for queue in range(plan.queues)
            ],
        )
        arms.check_source()
        yield arms


@contextmanager
def _session(folder: Path, jars: Sequence[Path]) -> Iterator[Any]:
    """Run Spark with Java's defaults: a full optimization of hot code."""
    options = f"-Dderby.system.home={folder / 'derby'} -Xss8m"
    with spark_session(
        folder,
        spark__driver__memory=_HEAP,
        spark__driver__extraJavaOptions=options,
        spark__jars=",".join(map(str, jars)),
        spark__sql__python__filterPushdown__enabled="true",
    ) as spark:
        spark.dataSource.register(ArrowSource)
        yield spark


def _started(writer: Any, place: Path) -> Any:
    """Start a query that reads what is stored now."""
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def _kept(rows: Any) -> Any:
    """Return *rows*, in the memory of Spark."""
    kept = rows.persist()
    kept.count()
    return kept
