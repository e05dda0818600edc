"""Log lines of the source: each states the query that it is about.

Spark's Python processes do not configure logging, so a warning would appear there without its time
and level.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from thin_client.spark.options import ReadOptions

_LOG = logging.getLogger("orderlane")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Spark's names for the properties of a streaming task.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


class QueryLog(logging.LoggerAdapter[logging.Logger]):
    """The logger ``orderlane``, with the query before each message."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message with the query."""
        return f"query of {self.extra['query'] if self.extra else ''}: {msg}", kwargs


def query_log(options: ReadOptions, *, task: Any = None) -> QueryLog:
    """Return the log of the query with *options*; *task*: Spark's context of one of its tasks.

    A source does not learn the name of its query. Only the tasks of a stream know its id.
    """
    if not _LOG.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        _LOG.addHandler(handler)
    query = f"group {options.connecting.group!r} and {options.selection}"
    if task is not None and (name := task.getLocalProperty(_QUERY)):
        query += f", id {name}, batch {task.getLocalProperty(_BATCH)}"
    return QueryLog(_LOG, {"query": query})
