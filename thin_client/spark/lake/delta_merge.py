"""Merging the small files of a Delta table, which is one commit of the table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import SparkSession

from thin_client.spark.error_lines import line_of
from thin_client.spark.lake.compaction import Compacted
from thin_client.spark.lake.files import qualified
from thin_client.spark.lake.kept_format import refuse_folders
from thin_client.spark.lake.names import DATE
from thin_client.spark.option_values import OptionError


@dataclass(slots=True)
class DeltaMerge:
    """The table at *path*; its files are rewritten in the driver, with a few of them in memory."""

    spark: SparkSession
    path: str
    _table: DeltaTable = field(init=False)

    def __post_init__(self) -> None:
        refuse_folders(self.spark, self.path)
        try:
            self._table = DeltaTable(qualified(self.spark, self.path))
        except TableNotFoundError:
            raise OptionError(f"there is no Delta table at {self.path}") from None

    def days(self) -> list[str]:
        """Return the days that have a file."""
        return sorted({each[DATE] for each in self._table.partitions() if each.get(DATE)})

    def drop(self, before: str) -> None:
        """Delete the days before *before* in one commit."""
        try:
            self._table.delete(f"{DATE} < CAST('{before}' AS DATE)")
        except DeltaError as error:
            raise OptionError(f"the Delta table {self.path}: {line_of(error)}") from None

    def merge(self, day: str, target: int) -> Compacted:
        """Merge the files of *day*, topic by topic, in their order."""
        try:
            done = self._table.optimize.compact(
                partition_filters=[(DATE, "=", day)], target_size=target
            )
        except DeltaError as error:
            raise OptionError(f"the Delta table {self.path}: {line_of(error)}") from None
        return Compacted(_number(done["numFilesRemoved"]), _number(done["numFilesAdded"]))

    def clean(self, hours: int) -> int:
        """Delete the files that no version of the last *hours* needs, and those of attempts that
        were not committed.
        """
        try:
            return len(
                self._table.vacuum(
                    hours, dry_run=False, enforce_retention_duration=False, full=True
                )
            )
        except DeltaError as error:
            raise OptionError(f"the Delta table {self.path}: {line_of(error)}") from None

    def close(self) -> None:
        """Do nothing: there is no connection."""


def _number(found: object) -> int:
    return int(json.loads(str(found)))
