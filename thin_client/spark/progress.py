"""A listener that reports a group's progress as soon as a micro-batch ends.

The source reports finished batches at the next trigger. If triggers are minutes apart, this
listener keeps the group's lag accurate::

    listener = ProgressListener(options, query="orders")  # the options of the source
    spark.streams.addListener(listener)
    spark.readStream.format("orderlane").options(**options).load().writeStream.queryName("orders")…

A query continues from Spark's checkpoint; the report is only for display. An error is therefore
logged, and the next batch reports again.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.data_source import report
from thin_client.spark.offsets import Offsets, flat
from thin_client.spark.options import ReadOptions
from thin_client.spark.selection import Selection

#: Time for which a job waits until Spark notifies its listeners of the end.
_END_S = 30.0


class ProgressListener(StreamingQueryListener):
    """Listener that commits the progress of the queries of one name.

    *options*: the source's. *query*: the name of the query; None generates one, see ``query``. The
    name is needed because listeners receive the progress of all queries of a session, without the
    options. ``rows`` and ``batches`` count the reported progress.
    """

    def __init__(self, options: Mapping[str, str], *, query: str | None = None) -> None:
        """Raise OptionError for invalid options."""
        read = ReadOptions.parse(options, streaming=True)
        self.query = query or f"orderlane-{read.connecting.group}-{secrets.token_hex(4)}"
        self.rows = self.batches = 0
        self._selection = read.selection
        self._client = BulkClient(read.connecting)
        self._ended: set[str] = set()
        self._news = threading.Condition()

    @contextmanager
    def listening(self, spark: SparkSession) -> Iterator[Self]:
        """Listen to the queries of *spark* for the duration of the context."""
        spark.streams.addListener(self)
        try:
            yield self
        finally:
            spark.streams.removeListener(self)
            self._client.close()

    def wait_for_end(self, query: Any) -> bool:
        """Wait for the last report of *query*, which has ended; return False after 30 s."""
        run = str(query.runId)
        with self._news:
            return self._news.wait_for(lambda: run in self._ended, timeout=_END_S)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing: no batch has ended."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Commit the end of a batch."""
        progress = event.progress
        if progress.name != self.query:
            return
        self.batches += 1
        self.rows += progress.numInputRows
        found = (ended_at(each.endOffset, self._selection) for each in progress.sources)
        for offsets in filter(None, found):
            report(self._client, offsets)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: no batch has ended."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Wake ``wait_for_end``."""
        with self._news:
            self._ended.add(str(event.runId))
            self._news.notify_all()


def ended_at(text: str | None, selection: Selection) -> Offsets | None:
    """Return the end offsets of an orderlane source in the queues of *selection*; None for another
    source's text. A checkpoint also keeps the positions of topics that are no longer read.
    """
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or not found:
        return None
    for queues in found.values():
        if not isinstance(queues, dict) or not queues:
            return None
        if any(type(number) is not int for number in queues.values()):
            return None
    return part if flat(part := selection.part_of(found)) else None
