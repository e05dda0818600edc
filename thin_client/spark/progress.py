"""A group's progress reported when a micro-batch ends, not when the next one is looked for.

The source reports with each trigger what ended before it. Where triggers are minutes apart, this
listener makes the group's lag true at once::

    listener = ProgressListener(options, query="orders")  # the options of the source
    spark.streams.addListener(listener)
    spark.readStream.format("orderlane").options(**options).load().writeStream.queryName("orders")…

Where a query goes on is Spark's own business, in its checkpoint: what is reported here only shows.
So an error is logged, and the next batch reports again.
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
from thin_client.spark.offsets import LIVES, Offsets
from thin_client.spark.options import ReadOptions
from thin_client.spark.selection import Selection

#: How long a job waits for Spark to tell its listeners of the end.
_END_S = 30.0


class ProgressListener(StreamingQueryListener):
    """Acks what the queries of one name have read.

    *options*: those of the source. *query*: the name of the query; None: one is made, see
    ``query``. A session's listeners hear all its queries, and offsets do not say whose they are.
    ``rows`` and ``batches`` count what was heard.
    """

    def __init__(self, options: Mapping[str, str], *, query: str | None = None) -> None:
        """Raises OptionError."""
        read = ReadOptions.parse(options, streaming=True)
        self.query = query or f"orderlane-{read.connecting.group}-{secrets.token_hex(4)}"
        self.rows = self.batches = 0
        self._selection = read.selection
        self._client = BulkClient(read.connecting)
        self._ended: set[str] = set()
        self._news = threading.Condition()

    @contextmanager
    def listening(self, spark: SparkSession) -> Iterator[Self]:
        """Hear the queries of *spark* while the context lasts."""
        spark.streams.addListener(self)
        try:
            yield self
        finally:
            spark.streams.removeListener(self)
            self._client.close()

    def wait_for_end(self, query: Any) -> bool:
        """Wait until all that *query*, which has ended, did was heard; False if time was up."""
        run = str(query.runId)
        with self._news:
            return self._news.wait_for(lambda: run in self._ended, timeout=_END_S)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing has been read yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch has ended."""
        progress = event.progress
        if progress.name != self.query:
            return
        self.batches += 1
        self.rows += progress.numInputRows
        found = (ended_at(each.endOffset, self._selection) for each in progress.sources)
        for offsets in filter(None, found):
            report(self._client, offsets)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing was read."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """All of it was heard."""
        with self._news:
            self._ended.add(str(event.runId))
            self._news.notify_all()


def ended_at(text: str | None, selection: Selection) -> Offsets | None:
    """The offsets that a source of ours has come to; None for what another source says."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or not found:
        return None
    for topic, queues in found.items():
        if not isinstance(queues, dict) or not queues:
            return None
        if topic == LIVES:
            continue
        for qid, offset in queues.items():
            if type(offset) is not int or not selection.wants((topic, qid)):
                return None
    return found
