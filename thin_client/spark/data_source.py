"""The data source ``orderlane``: Spark's interface to the pure modules of this package.

Batches and streams are planned and read alike: queue positions first, then slices of queues, one
for each task. Spark pickles readers, and keeps a stream's reader in a process beside the driver, so
a reader connects with its first request.

Spark's checkpoint alone stores progress, and alone defines what a batch reads. The first batch of a
query has no messages: it records where the query begins, and from then on the options for the start
have no effect. The proxy's committed offsets only show the group's lag.
Spark calls ``commit`` one batch late and never for the last batch. But each trigger, even one
without new messages, calls ``latestOffset`` with the end of the finished batches, so this call
reports them; ``progress.py`` reports without waiting for a trigger. Spark may not call ``stop``;
nothing depends on it, because a proxy keeps no state for a reader.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from thin_client.errors import ClientError
from thin_client.spark.admission import Admission
from thin_client.spark.bulk_client import BulkClient, Counts, DataLost
from thin_client.spark.filters import Pruning, pruning
from thin_client.spark.kafka_names import is_kafka
from thin_client.spark.logs import QueryLog, query_log
from thin_client.spark.offsets import (
    Offsets,
    Queue,
    Slice,
    Task,
    batch_of,
    check_partitions,
    check_start,
    ending,
    ends,
    starting,
)
from thin_client.spark.option_table import OPTIONS, READ, STREAM
from thin_client.spark.option_values import names
from thin_client.spark.options import Connecting, OptionError, ReadOptions
from thin_client.spark.planning import (
    Loss,
    MessagesGone,
    Plan,
    loss_summary,
    pack,
    plan_batch,
    plan_stream,
)
from thin_client.spark.poll_pace import PollPace
from thin_client.spark.proxy_calls import FAILURES
from thin_client.spark.queues import Queues
from thin_client.spark.records import (
    arrow_schema,
    chosen_columns,
    column_names,
    need_records,
    position_batches,
    record_batches,
    schema_ddl,
)
from thin_client.spark.reports import Outcome, Reports
from thin_client.spark.sentences import without_tracebacks
from thin_client.spark.tables import HOLDER, effective, new_table
from thin_client.spark.tables import OPTIONS as OPTIONS_KEY
from thin_client.spark.writing import BatchWriter, StreamWriter

_log = logging.getLogger("orderlane")

Log = logging.Logger | QueryLog
#: The module of the worker in which Spark offers filters, if the session's setting allows it.
_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class OrderlaneDataSource(DataSource):
    """Read topics as DataFrames, and write DataFrames to topics, with format ``orderlane``.

    Read what a topic holds, as consumer group ``lake``::

        orders = (
            spark.read.format("orderlane")
            .option("servers", "127.0.0.1:9713")
            .option("group", "lake")
            .option("subscribe", "orders")
            .load()
        )

    Follow it as a stream, from its oldest message::

        query = (
            spark.readStream.format("orderlane")
            .option("servers", "127.0.0.1:9713")
            .option("group", "lake")
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("console")
            .option("checkpointLocation", "/tmp/lake/console")
            .start()
        )

    Write rows, ``value`` as the body and ``key`` as the message key::

        paid = spark.createDataFrame([("customer-1", '{"paid": 12}')], "key string, value string")
        (
            paid.write.format("orderlane")
            .option("servers", "127.0.0.1:9713")
            .option("topic", "payments")
            .mode("append")
            .save()
        )

    All option values are strings; names are case-insensitive. The most used options:

    ==========================  =======================  ==========================================
    option                      type, default            meaning
    ==========================  =======================  ==========================================
    ``servers``                 host:port; required      proxies, separated by commas
    ``group``                   text; required to read   consumer group
    ``subscribe``               topic list               or ``subscribePattern`` or ``assign``
    ``startingOffsets``         ``earliest``; a stream:  start: ``earliest``, ``latest``, or JSON
                                ``latest``
    ``endingOffsets``           ``latest``               exclusive end of a batch
    ``failOnDataLoss``          boolean; ``true``        fail if unread messages are gone
    ``maxOffsetsPerTrigger``    messages; no limit       maximum of a micro-batch
    ``minPartitions``           tasks; one per queue     minimum number of tasks
    ``batchBytes``              size; ``4m``             bytes that a task reads at a time
    ``requestTimeout``          duration; ``10s``        time to wait for a proxy's answer
    ``topic``                   text; column ``topic``   topic to write to
    ``batchSize``               messages; ``2000``       messages in one request of a writer
    ``maxRowsPerSecond``        rows/s; no limit         maximum rate of each writing task
    ==========================  =======================  ==========================================

    ``print(thin_client.spark.option_table.table())`` shows all options; ``docs/spark.md`` describes
    the columns and guarantees too.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "orderlane"

    def schema(self) -> StructType | str:
        """Return the columns. Spark calls this first, so it also checks the options."""
        with without_tracebacks():
            if (table := new_table(self.options)) is not None:
                return _table_schema(table)
            options = _checked(self.options)
            kafka = options.kafka_names
            columns = column_names(include_headers=options.include_headers, kafka_names=kafka)
            return schema_ddl(columns, kafka_names=kafka)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader of ``spark.read``."""
        with without_tracebacks():
            given = effective(schema.fields, self.options, READ)
            options = ReadOptions.parse(given, streaming=False)
            columns = _columns(schema, options)
        pushed = options.filter_pushdown
        if _filters_are_pushed() if pushed is None else pushed:
            return PruningReader(options, columns)
        return BatchReader(options, columns)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of ``spark.readStream``."""
        try:
            given = effective(schema.fields, self.options, STREAM)
            options = ReadOptions.parse(given, streaming=True)
            columns = _columns(schema, options)
        except OptionError as error:
            return RefusedReader(error)
        return StreamReader(options, columns)

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        """Return the writer of ``df.write``."""
        with without_tracebacks():
            return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer of ``df.writeStream``."""
        with without_tracebacks():
            return StreamWriter(self.options, schema, overwrite=overwrite)


class BatchReader(DataSourceReader):
    """Reader of a batch: the messages stored when the query is planned."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each task."""
        with without_tracebacks(), closing(_client(self._options.connecting)) as client:
            plan = self._plan(Queues(client, self._options.selection))
            _judge(plan.losses, self._options)
            counts = Counts()
            _count(plan.losses, counts)
            if counts:
                report(client, {}, counts, log=query_log(self._options))
        return _tasks(plan, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of a task as Arrow batches. Runs on an executor."""
        # For a plan without tasks Spark creates a partition without a slice.
        if partition.value is None:
            return iter(())
        return _rows(partition.value, self._options, self._columns)

    def _plan(self, queues: Queues) -> Plan:
        options, prune = self._options, self._pruning
        states = queues.states()
        check_partitions(self._columns, states)
        at_time = queues.at_time
        first = starting(options.starting, states, at_time=at_time, strategy=options.strategy)
        last = ending(options.ending, states, at_time=at_time)
        since_ms, until_ms = prune.lookups_ms
        return plan_batch(
            prune.starts(first, _offsets_at(queues, since_ms)),
            prune.ends(last, _offsets_at(queues, until_ms)),
            states,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )


class PruningReader(BatchReader):
    """Reader of a batch with filter pushdown.

    A separate class, because Spark fails a query whose reader defines ``pushFilters`` unless
    ``spark.sql.python.filterPushdown.enabled`` is set. A source does not see this setting, but
    Spark offers filters in a worker of its own: only there does ``reader`` return this class by
    default.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Apply the filters that can prune; return those that Spark has to apply."""
        self._pruning, left = pruning(filters)
        return left


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream. Its offsets are topic → qid → next offset to read."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._admission = Admission(options)
        self._client = _client(options.connecting)
        self._pace = PollPace()
        self._queues = Queues(self._client, options.selection)
        self._ends_now = False
        self._latest: Offsets | None = None
        self._reported_losses: set[Loss] = set()
        self._begun: Offsets | None = None
        self._reports = Reports()
        self._decided: Offsets | None = None
        self._repeated: Offsets | None = None
        self._counts = Counts()

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Return the start of the first batch of every query: no queue has begun.

        Spark asks for it again if the first batch has to be repeated, so it depends on nothing.
        """
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options. Spark supports one limit; if two are set, this is the
        maximum, and ``latestOffset`` applies both.
        """
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query at the ends of the queues at the next request."""
        self._ends_now = True

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the end of the next batch; *start* if there are no or too few messages to read.

        Finished batches have read everything before *start*. The first batch of a query records
        where it begins, and has no messages.
        """
        with without_tracebacks():
            check_start(start)
            time.sleep(self._pace.wait_s(time.monotonic()))
            began_s = time.monotonic()
            # Before it has read anything, a query has no progress.
            self._report({} if start == self._begun else start)
            states = self._queues.states(since=start)
            check_partitions(self._columns, states)
            ended_s = time.monotonic()
            before, self._latest = self._latest, ends(states)
            news = self._latest != before
            if self._ends_now:
                self._ends_now = False
                self._admission.end_at(states)
            if not start:
                self._begun = self._admission.first(states, self._queues.at_time)
                self._decided = self._begun
                self._pace.asked(began_s, ended_s, news=news, behind=True)
                return self._begun
            limited = not isinstance(limit, ReadAllAvailable)
            target = self._admission.target(start, states, now_s=ended_s, limited=limited)
            self._pace.asked(began_s, ended_s, news=news, behind=target.behind)
            self._judge(target.losses)
            self._decided = target.offsets
            return target.offsets

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """Return the queues' ends at the last request, for the query's progress report."""
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return a partition for each task of a batch, which may date from before a crash."""
        with without_tracebacks():
            check_start(start)
            states = self._queues.of(part.queue for part in batch_of(start, end))
            check_partitions(self._columns, states)
            plan = plan_stream(
                start,
                end,
                states,
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records_per_partition,
            )
            self._judge(plan.losses)
            self._note_repetition(end, plan)
        return _tasks(plan, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of a task as Arrow batches. Runs on an executor."""
        return _rows(partition.value, self._options, self._columns)

    def commit(self, end: Offsets) -> None:
        """Report the end of a batch, unless ``latestOffset`` has already reported it."""
        self._report(end)

    def stop(self) -> None:
        """Close the connection."""
        self._client.close()

    def _report(self, offsets: Offsets) -> None:
        """Report progress to the proxy, without retries: a later report supersedes it. An idle
        stream has no later one, and repeats it. Counts are reported again until the proxy has them.
        """
        if not self._reports.are_due(offsets, time.monotonic()) and not self._counts:
            return
        wanted = self._options.selection.part_of(offsets)
        outcome = report(self._client, wanted, self._counts, log=query_log(self._options))
        self._reports.ended(offsets, outcome, time.monotonic())
        if outcome is not Outcome.FAILED:
            self._counts = Counts()

    def _judge(self, losses: Iterable[Loss]) -> None:
        """Raise or log each loss, as the module's ``_judge`` does, but only once; count it."""
        news = [loss for loss in losses if loss not in self._reported_losses]
        _judge(news, self._options)
        self._reported_losses.update(news)
        _count(news, self._counts)

    def _note_repetition(self, end: Offsets, plan: Plan) -> None:
        """Count the messages of a batch that an earlier process may have read, once per batch."""
        if end in (self._decided, self._repeated) or not plan.slices:
            return
        self._repeated = end
        for part in plan.slices:
            self._counts.repeated[part.topic] += part.size
        query_log(self._options).warning(
            "an unfinished batch is repeated: %s", names(map(str, plan.slices))
        )


class RefusedReader(DataSourceStreamReader):
    """Reader of a stream with invalid options: each call raises their error.

    If creating a reader fails, Spark's streaming runner shows an error of its own instead.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def _refuse(self, *_: object) -> Any:
        with without_tracebacks():
            raise self._error

    initialOffset = getDefaultReadLimit = partitions = read = _refuse  # noqa: N815

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Any:  # noqa: N802
        """Raise the error. Spark inspects the number of parameters."""
        self._refuse()


def report(
    client: BulkClient,
    offsets: Mapping[str, Mapping[str, int]],
    counts: Counts | None = None,
    *,
    log: Log = _log,
) -> Outcome:
    """Set the group's committed offsets, and report *counts*; log a failure or refusal, since
    Spark's checkpoint has the offsets too.
    """
    try:
        refusal = client.report(offsets, counts)
    except ClientError as error:
        log.warning("reporting the query's progress failed: %s", error)
        return Outcome.FAILED
    if refusal is not None:
        log.warning("the proxy did not take the query's progress: %s", refusal)
        return Outcome.REFUSED
    return Outcome.TAKEN


def _client(connecting: Connecting) -> BulkClient:
    return BulkClient(connecting, failures=FAILURES)


def _tasks(plan: Plan, options: ReadOptions) -> list[InputPartition]:
    """Return the tasks of *plan*; they begin at different proxies, of those that answer."""
    packed = pack(plan.slices, options.max_partitions, options.max_records_per_partition)
    servers, now_s = options.connecting.servers, time.monotonic()
    return [
        InputPartition(Task(parts, FAILURES.order(servers, now_s, turn=turn)))
        for turn, parts in enumerate(packed)
    ]


def _rows(task: Task, options: ReadOptions, columns: Sequence[str]) -> Iterator[Any]:
    if not need_records(columns):
        for part in task.parts:
            yield from position_batches(part, columns, kafka_names=options.kafka_names)
        return
    connecting = replace(options.connecting, servers=task.servers)
    with without_tracebacks(), closing(_client(connecting)) as client:
        for part in task.parts:
            chunks = _chunks(client, part, options, with_bodies="value" in columns)
            yield from record_batches(chunks, part, columns, kafka_names=options.kafka_names)


def _chunks(
    client: BulkClient, part: Slice, options: ReadOptions, *, with_bodies: bool
) -> Iterator[bytes]:
    """Yield the slice's stored records; raise DataLost or skip lost ones by ``failOnDataLoss``."""
    log = query_log(options, task=TaskContext.get())
    while True:
        try:
            yield from client.records(
                part, batch_bytes=options.batch_bytes, with_bodies=with_bodies
            )
        except DataLost as lost:
            if options.fail_on_data_loss:
                raise
            log.warning("%s", lost)
            gone = Counts(lost=Counter({part.topic: lost.first_there - lost.part.start}))
            report(client, {}, gone, log=log)
            part = replace(part, start=lost.first_there)
        else:
            return


def _judge(losses: Sequence[Loss], options: ReadOptions) -> None:
    if losses and options.fail_on_data_loss:
        raise MessagesGone(losses)
    if losses:
        query_log(options).warning("unread messages are gone: %s", loss_summary(losses))


def _count(losses: Iterable[Loss], counts: Counts) -> None:
    for loss in losses:
        if loss.messages:
            topic, _ = loss.queue
            (counts.skipped if loss.returns else counts.lost)[topic] += loss.messages


def _offsets_at(queues: Queues, timestamp_ms: int | None) -> dict[Queue, int]:
    if timestamp_ms is None:
        return {}
    states = queues.at_time(timestamp_ms)
    return {state.queue: state.at for state in states if state.at is not None}


def _table_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a new table with *options*."""
    headers, kafka = options.get("includeheaders", "").lower() == "true", is_kafka(options)
    chosen = column_names(include_headers=headers, kafka_names=kafka)
    columns = from_arrow_schema(arrow_schema(chosen, kafka_names=kafka))
    return StructType(
        [
            StructField(
                each.name,
                each.dataType,
                metadata={OPTIONS_KEY: dict(options)} if each.name == HOLDER else None,
            )
            for each in columns.fields
        ]
    )


def _checked(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a reader, valid for a batch or a stream: Spark does not yet say which,
    and the reader checks again.
    """
    streams = {each.name.lower() for each in OPTIONS if STREAM in each.where} - {
        each.name.lower() for each in OPTIONS if READ in each.where
    }
    is_stream = not streams.isdisjoint(name.lower() for name in options)
    try:
        return ReadOptions.parse(options, streaming=is_stream)
    except OptionError:
        with suppress(OptionError):
            return ReadOptions.parse(options, streaming=not is_stream)
        raise


def _columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Return the columns of a query. Raises OptionError."""
    given = to_arrow_schema(schema, timezone="UTC")
    return chosen_columns(given, kafka_names=options.kafka_names)


def _filters_are_pushed() -> bool:
    """Return whether this process is a worker to which Spark offers filters."""
    return _PUSHING_WORKER in sys.modules
