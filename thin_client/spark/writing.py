"""The sink: ``df.write`` and ``df.writeStream`` with format ``orderlane``.

Rows are sent through the proxy, those of a key in the order of their task, at least once. Spark
creates the writer on the driver, where it refuses invalid columns, and topics that take no rows,
before any task runs, and sends copies to tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from thin_client.delivery import new_message_id
from thin_client.spark.destinations import check_destination
from thin_client.spark.option_table import WRITE, WRITE_STREAM
from thin_client.spark.options import OptionError, WriteOptions
from thin_client.spark.outgoing import Origin, Pace, check_columns, portions
from thin_client.spark.proxy_calls import FAILURES
from thin_client.spark.row_sender import RowSender
from thin_client.spark.sentences import without_tracebacks
from thin_client.spark.tables import effective

#: Time for which a request is retried before its task fails and Spark repeats it: longer than a
#: restart of a broker or proxy.
_PATIENCE_S = 60.0
#: Local properties that Spark sets for the tasks of a micro-batch.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """Result of a task."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch. Its job ID is generated on the driver, so repeated tasks use the same."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool) -> None:
        """Raise OptionError for invalid options or columns, a topic to which rows cannot be sent,
        and for *overwrite*; ClientError if no proxy answers.
        """
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode('append')")
        self._options = _planned(schema, options, WRITE)
        self._job = self._options.job_id or new_message_id()

    def write(self, iterator: Iterator[Any]) -> Written:
        """Send the rows of a task."""
        with without_tracebacks():
            return _send_all(iterator, self._options, _origin(self._options, self._job))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a query's micro-batches, which are named after the query and their number."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool) -> None:
        """Raise OptionError for invalid options or columns, a topic to which rows cannot be sent,
        and for *overwrite*; ClientError if no proxy answers.
        """
        if overwrite:
            raise OptionError(
                "a topic cannot be overwritten by outputMode complete: use append or update"
            )
        self._options = _planned(schema, options, WRITE_STREAM)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Send the rows of a task."""
        context = TaskContext.get()
        batch = f"{context.getLocalProperty(_QUERY)}/{context.getLocalProperty(_BATCH)}"
        with without_tracebacks():
            return _send_all(iterator, self._options, _origin(self._options, batch))


def _planned(schema: Any, given: Mapping[str, str], where: str) -> WriteOptions:
    """Return the options of a write, after all refusals that need no row."""
    options = WriteOptions.parse(effective(schema.fields, given, where), streaming=where != WRITE)
    check_columns(
        [(field.name, field.dataType.simpleString()) for field in schema.fields],
        topic=options.topic,
        key_encoding=options.key_encoding,
        ignore_others=options.ignore_extra_columns,
        kafka_names=options.kafka_names,
    )
    if options.topic is not None:
        check_destination(options.connecting, options.topic, failures=FAILURES)
    return options


def _origin(options: WriteOptions, batch: str) -> Origin:
    return Origin(
        batch,
        TaskContext.get().partitionId(),
        options.topic,
        options.batch_id_property,
        options.key_encoding or "utf8",
    )


def _send_all(batches: Iterator[Any], options: WriteOptions, origin: Origin) -> Written:
    rate = options.max_rows_per_second
    pace = None if rate is None else Pace(rate, time.monotonic())
    most = options.batch_size * options.concurrent_requests
    rows = 0
    with RowSender(options, origin, patience_s=_PATIENCE_S, failures=FAILURES) as sender:
        for batch in batches:
            for part in portions(batch.num_rows, most, rows_per_second=rate):
                some = batch.slice(part.start, part.stop - part.start)
                sender.send(some, first=rows)
                rows += some.num_rows
                if pace is not None:
                    time.sleep(pace.wait_s(some.num_rows, time.monotonic()))
    return Written(rows)
