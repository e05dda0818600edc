"""Display of errors that a user can fix: one sentence, without a Python traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from thin_client.errors import ClientError
from thin_client.spark.bulk_client import DataLost
from thin_client.spark.options import OptionError
from thin_client.spark.outgoing import RowRefused
from thin_client.spark.planning import MessagesGone
from thin_client.spark.records import GarbledRecords

#: Spark's workers omit the traceback if it is set. A worker that fails exits, so it is not unset.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_FIXABLE = (OptionError, ClientError, DataLost, MessagesGone, GarbledRecords, RowRefused)


@contextmanager
def without_tracebacks() -> Iterator[None]:
    """In a Spark worker, raise errors that a user can fix without traceback and cause."""
    try:
        yield
    except _FIXABLE as error:
        os.environ[_HIDE_TRACEBACK] = "1"
        error.__cause__, error.__suppress_context__ = None, True
        raise
