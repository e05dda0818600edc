"""The sink: ``df.write`` and ``df.writeStream`` with format ``orderlane``.

Rows go through the proxy, in their order in the task, at least once. Spark makes a writer on the
driver, which refuses what cannot be written before any task runs, and sends copies of it to tasks.
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
from thin_client.producer import Producer
from thin_client.spark.options import OptionError, WriteOptions
from thin_client.spark.outgoing import Origin, Pace, check_columns, portions
from thin_client.spark.sentences import sentences

#: How long one request may be tried before its task fails, which Spark then runs again: longer than
#: a broker or proxy takes to start anew.
_PATIENCE_S = 60.0
#: What Spark tells the tasks of a micro-batch.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task sent."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch. Its name is made here, once: tasks that run again know it."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool) -> None:
        """Raises OptionError for what cannot be written."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode('append')")
        self._options = WriteOptions.parse(options, streaming=False)
        _check(schema, self._options)
        self._job = self._options.job_id or new_message_id()

    def write(self, iterator: Iterator[Any]) -> Written:
        """Send the rows of a task."""
        with sentences():
            return _send_all(iterator, self._options, _origin(self._options, self._job))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, which are named by it and their number."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool) -> None:
        """Raises OptionError for what cannot be written."""
        if overwrite:
            raise OptionError(
                "outputMode is complete, and a topic cannot be overwritten: use append or update"
            )
        self._options = WriteOptions.parse(options, streaming=True)
        _check(schema, self._options)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Send the rows of a task."""
        context = TaskContext.get()
        batch = f"{context.getLocalProperty(_QUERY)}/{context.getLocalProperty(_BATCH)}"
        with sentences():
            return _send_all(iterator, self._options, _origin(self._options, batch))


def _check(schema: Any, options: WriteOptions) -> None:
    found = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_columns(found, topic=options.topic)


def _origin(options: WriteOptions, batch: str) -> Origin:
    partition = TaskContext.get().partitionId()
    return Origin(batch, partition, options.topic, options.batch_id_property)


def _send_all(batches: Iterator[Any], options: WriteOptions, origin: Origin) -> Written:
    connecting, rate = options.connecting, options.max_rows_per_second
    pace = None if rate is None else Pace(rate, time.monotonic())
    rows = 0
    with Producer(
        connecting.servers, timeout_s=_PATIENCE_S, token=connecting.token, tls=connecting.tls
    ) as producer:
        for batch in batches:
            names = batch.schema.names
            for part in portions(batch.num_rows, options.batch_size, rows_per_second=rate):
                some = batch.slice(part.start, part.stop - part.start)
                columns = {name: some.column(name).to_pylist() for name in names}
                producer.send_batch(origin.messages(columns, first=rows))
                rows += some.num_rows
                if pace is not None:
                    time.sleep(pace.wait_s(some.num_rows, time.monotonic()))
    return Written(rows)
