"""Errors that a person can mend reach them as one sentence, not behind a page of Python."""

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

#: Spark's workers leave the traceback away if it is set. One that fails ends, and this with it.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_MENDABLE = (OptionError, ClientError, DataLost, MessagesGone, GarbledRecords, RowRefused)


@contextmanager
def sentences() -> Iterator[None]:
    """Inside, in a worker of Spark: what can be mended ends the worker with its sentence alone."""
    try:
        yield
    except _MENDABLE as error:
        os.environ[_HIDE_TRACEBACK] = "1"
        error.__cause__, error.__suppress_context__ = None, True
        raise
