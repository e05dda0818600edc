"""The data source ``orderlane``: what Spark calls. Decisions are elsewhere.

A batch is planned and read as a stream is: positions of queues first, then slices of them, one for
each task. Spark pickles readers and sends them about, and keeps one for the life of a stream in a
process beside the driver; so a reader connects when it is asked something, not before.

Progress is kept by Spark, in its checkpoint; what the proxy is told is for people who look at the
group's lag. Spark calls ``commit`` one batch late, and never for the last one. But each trigger
asks what there is behind the batches that have ended, also the one that finds nothing more: so the
question itself tells how far the query is. ``progress.py`` tells it without waiting for a trigger.
``stop`` may not be called either; nothing depends on it, since a proxy keeps nothing of a reader.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from thin_client.errors import ClientError
from thin_client.spark.admission import Admission
from thin_client.spark.bulk_client import BulkClient, DataLost
from thin_client.spark.filters import Pruning, pruning
from thin_client.spark.offsets import (
    Offsets,
    Queue,
    Slice,
    ending,
    ends,
    flat,
    starting,
    with_lives,
)
from thin_client.spark.option_table import OPTIONS, READ, STREAM
from thin_client.spark.options import OptionError, ReadOptions
from thin_client.spark.planning import (
    Loss,
    MessagesGone,
    Plan,
    moved,
    plan_batch,
    plan_stream,
    told,
)
from thin_client.spark.queues import Queues
from thin_client.spark.records import arrow_schema, record_batches, schema_ddl
from thin_client.spark.sentences import sentences
from thin_client.spark.writing import BatchWriter, StreamWriter

_log = logging.getLogger("orderlane")

#: A stream without a trigger asks for news a hundred times a second; brokers are asked this often.
_ASK_EVERY_S = 0.1


class OrderlaneDataSource(DataSource):
    """``spark.read.format("orderlane")`` and its sisters; ``docs/spark.md`` has the options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "orderlane"

    def schema(self) -> str:
        """The columns. The first thing that Spark asks, so wrong options are refused here."""
        with sentences():
            return schema_ddl(include_headers=_checked(self.options).include_headers)

    def reader(self, schema: Any) -> DataSourceReader:
        """For ``spark.read``."""
        with sentences():
            options = ReadOptions.parse(self.options, streaming=False)
            _check_schema(schema, options)
        return PruningReader(options) if options.filter_pushdown else BatchReader(options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """For ``spark.readStream``."""
        try:
            options = ReadOptions.parse(self.options, streaming=True)
            _check_schema(schema, options)
        except OptionError as error:
            return RefusedReader(error)
        return StreamReader(options)

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        """For ``df.write``."""
        with sentences():
            return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        """For ``df.writeStream``."""
        with sentences():
            return StreamWriter(self.options, schema, overwrite=overwrite)


class BatchReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        with sentences(), closing(BulkClient(self._options.connecting)) as client:
            plan = self._plan(Queues(client, self._options.selection))
            _judge(plan.losses, self._options)
        return list(map(InputPartition, plan.slices))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, in a process of its own, as Arrow."""
        # Of a plan without tasks Spark makes one without a slice.
        return iter(()) if partition.value is None else _rows(partition.value, self._options)

    def _plan(self, queues: Queues) -> Plan:
        options, prune = self._options, self._pruning
        states = queues.states()
        at_time = queues.at_time
        first = starting(options.starting, states, at_time=at_time, strategy=options.strategy)
        last = ending(options.ending, states, at_time=at_time)
        return plan_batch(
            prune.starts(first, _offsets_at(queues, prune.since_ms)),
            prune.ends(last, _offsets_at(queues, prune.until_ms)),
            states,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )


class PruningReader(BatchReader):
    """The same where filters decide what is read: a class of its own, since Spark fails a query
    whose reader can take filters unless ``spark.sql.python.filterPushdown.enabled`` is set.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Take what can prune; the filters that Spark has to apply itself."""
        self._pruning, left = pruning(filters)
        return left


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes. Its offsets are topic → qid → the next offset to read."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._moves = options.starting.moves()
        self._admission = Admission(options)
        self._client = BulkClient(options.connecting)
        self._queues = Queues(self._client, options.selection)
        self._latest: Offsets | None = None
        self._told: set[Loss] = set()
        self._asked_s = float("-inf")
        self._initial: Offsets | None = None
        self._begun = False
        self._reported: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Where a query without a checkpoint begins. Spark asks twice, and must hear the same."""
        options = self._options
        if self._initial is None:
            with sentences():
                states = self._queues.states()
                begun = starting(
                    options.starting,
                    states,
                    at_time=self._queues.at_time,
                    strategy=options.strategy,
                )
                self._initial = with_lives(begun, {each.queue: each.life for each in states})
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say. Spark knows one limit at a time; where there are two, this is the
        larger, and ``latestOffset`` counts with both.
        """
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Go no further than what is there now."""
        with sentences():
            self._admission.end_at(self._queues.states())

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Where the next batch ends; *start* if there is nothing to read, or too little. All before
        *start* was read in batches that have ended. The first batch of a query is empty, if it
        would begin elsewhere when it is run again.
        """
        with sentences():
            self._pause()
            if start != self._initial:
                self._report(start)
            elif not self._begun and self._moves:
                # Spark notes where batches end, not where the first one begins. An empty one it is,
                # or what retention takes before that is run again would be missed by nobody.
                self._begun = True
                return start
            states = self._queues.states(known=flat(start))
            self._latest = ends(states)
            limited = not isinstance(limit, ReadAllAvailable)
            target = self._admission.target(start, states, now_s=time.monotonic(), limited=limited)
            self._judge(target.losses)
            return target.offsets

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """Where the queues ended when they were last asked; for the query's progress."""
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The tasks of a batch; also of one that was decided on before a crash."""
        again, self._begun = self._initial is not None and not self._begun, True
        if again and self._moves:
            return []  # the first one, which was empty; *start* is of now, not of then
        with sentences():
            plan = plan_stream(
                start,
                end,
                self._queues.of(moved(start, end)),
                selection=self._options.selection,
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records_per_partition,
            )
            self._judge(plan.losses)
        return list(map(InputPartition, plan.slices))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, in a process of its own, as Arrow."""
        return _rows(partition.value, self._options)

    def commit(self, end: Offsets) -> None:
        """A batch has ended: mostly told by then, when Spark asked for the next one."""
        self._report(end)

    def stop(self) -> None:
        """End the connection."""
        self._client.close()

    def _report(self, offsets: Offsets) -> None:
        """Tell the proxy how far the query is; once: if that fails, the next batch tells more."""
        if offsets != self._reported:
            self._reported = offsets
            report(self._client, offsets)

    def _judge(self, losses: Iterable[Loss]) -> None:
        """As ``_judge`` below, but what was said of a loss is not said with every batch."""
        news = [loss for loss in losses if loss not in self._told]
        _judge(news, self._options)
        self._told.update(news)

    def _pause(self) -> None:
        wait_s = self._asked_s + _ASK_EVERY_S - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        self._asked_s = time.monotonic()


class RefusedReader(DataSourceStreamReader):
    """Says what is wrong when it is asked something: of an error where a reader is made, Spark's
    runner of streams shows one of its own instead.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def _refuse(self, *_: object) -> Any:
        with sentences():
            raise self._error

    initialOffset = getDefaultReadLimit = partitions = read = _refuse  # noqa: N815

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Any:  # noqa: N802
        """As the others; Spark counts the parameters of this one."""
        self._refuse()


def report(client: BulkClient, offsets: Mapping[str, Mapping[str, int]]) -> bool:
    """Set the group's committed offsets; a failure is one warning, for Spark has them as well."""
    try:
        taken = client.ack(offsets)
    except ClientError as error:
        _log.warning("the proxy was not told how far the query is: %s", error)
        return False
    if not taken:
        _log.warning(
            "the proxy took no report of how far the query is: another consumerId reports for its"
            " group, or thin clients consume with it"
        )
    return taken


def _rows(part: Slice, options: ReadOptions) -> Iterator[Any]:
    with sentences(), closing(BulkClient(options.connecting)) as client:
        chunks = _chunks(client, part, options)
        yield from record_batches(chunks, part, include_headers=options.include_headers)


def _chunks(client: BulkClient, part: Slice, options: ReadOptions) -> Iterator[bytes]:
    """Stored records from the slice's first to its last; what is lost ends them, or is passed."""
    while True:
        try:
            yield from client.records(part, batch_bytes=options.batch_bytes)
        except DataLost as lost:
            if options.fail_on_data_loss:
                raise
            _log.warning("%s", lost)
            part = replace(part, start=lost.first_there)
        else:
            return


def _judge(losses: Sequence[Loss], options: ReadOptions) -> None:
    if losses and options.fail_on_data_loss:
        raise MessagesGone(losses)
    if losses:
        _log.warning("messages that were still to be read are gone: %s", told(losses))


def _offsets_at(queues: Queues, timestamp_ms: int | None) -> dict[Queue, int]:
    if timestamp_ms is None:
        return {}
    states = queues.at_time(timestamp_ms)
    return {state.queue: state.at for state in states if state.at is not None}


def _checked(options: Mapping[str, str]) -> ReadOptions:
    """The options of a reader. Spark does not say yet whether of a batch or of a stream: what
    either takes passes, and the reader looks again.
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


def _check_schema(schema: Any, options: ReadOptions) -> None:
    given = to_arrow_schema(schema, timezone="UTC")
    if not given.equals(arrow_schema(include_headers=options.include_headers)):
        raise OptionError(
            "the columns of orderlane are given: leave schema() out, and choose with select()"
        )
