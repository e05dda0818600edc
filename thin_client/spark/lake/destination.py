"""The place where an archive stores its messages, whatever its format."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame


class Destination(Protocol):
    """A table, or a folder, that takes each micro-batch of a query once."""

    def prepare(self, rows: DataFrame) -> None:
        """Create the table for *rows* unless it exists, or compare and extend its columns.

        Raises OptionError.
        """

    def checkpoint(self) -> str:
        """Return the folder of a query's checkpoint, as a Spark path, unless the job names one.

        Call ``prepare`` first.
        """

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        """Store *batch*, number *number* of *query*, unless it is stored already.

        Raises OptionError.
        """

    def close(self) -> None:
        """Close connections of the driver."""
