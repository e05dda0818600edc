"""Merging the small files of an Iceberg table: Spark writes the merged files, one commit replaces
the small ones.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.expressions import LessThan
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from thin_client.spark.error_lines import line_of
from thin_client.spark.lake.compaction import Compacted, small
from thin_client.spark.lake.files import files_below
from thin_client.spark.lake.iceberg import check_partitions, once, open_catalog
from thin_client.spark.lake.iceberg_columns import columns_of, names_of, read_files
from thin_client.spark.lake.iceberg_parts import within
from thin_client.spark.lake.names import files_for
from thin_client.spark.lake.parts import day_of_number
from thin_client.spark.lake.rows import ORDER, as_lake_files
from thin_client.spark.option_values import OptionError

#: Commits of other writers, between which a merge is tried again.
_ATTEMPTS = 20


@dataclass(slots=True)
class IcebergMerge:
    """The table *name* of the catalog with *options*."""

    spark: SparkSession
    name: str
    options: Mapping[str, str]
    _catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        self._catalog = open_catalog(self.name, self.options)
        check_partitions(self._load())

    def days(self) -> list[str]:
        """Return the days that have a file; rows without a time belong to none, and files from
        before the table was partitioned by days stay as they are.
        """
        table = self._load()
        return sorted(filter(None, {_day(table, each) for each in table.scan().plan_files()}))

    def drop(self, before: str) -> None:
        """Delete the days before *before* in one commit: whole files, since they are of one day."""
        try:
            self._load().delete(LessThan("timestamp", f"{before}T00:00:00+00:00"))
        except (CommitFailedException, ValidationException) as error:
            raise OptionError(
                f"the Iceberg table {self.name} was changed: {line_of(error)}"
            ) from None

    def merge(self, day: str, target: int) -> Compacted:
        """Merge the files of *day*, topic by topic."""
        topics: dict[str, list[Any]] = defaultdict(list)
        table = self._load()
        for each in table.scan(row_filter=within(day)).plan_files():
            # A file with deleted rows stays: only the table's own readers leave these out.
            if _day(table, each) == day and not each.delete_files:
                topics[each.file.partition[1]].append(each.file)
        done = Compacted()
        for _, files in sorted(topics.items()):
            chosen = small(((each.file_path, each.file_size_in_bytes) for each in files), target)
            old = [each for each in files if each.file_path in chosen]
            if old:
                done += self._rewrite(table, old, target)
        return done

    def clean(self, hours: int) -> int:
        """Forget the snapshots that are older than *hours*, except the current one."""
        table = self._load()
        oldest = datetime.now(UTC) - timedelta(hours=hours)
        before = len(table.snapshots())
        table.maintenance.expire_snapshots().older_than(oldest).commit()
        return before - len(self._load().snapshots())

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._catalog.close()

    def _rewrite(self, table: Table, old: list[Any], target: int) -> Compacted:
        folder = f"{table.location().rstrip('/')}/data/merged-{uuid.uuid4().hex}"
        count = files_for(sum(each.file_size_in_bytes for each in old), target)
        with as_lake_files(self.spark, None):
            rows = read_files(
                self.spark,
                [each.file_path for each in old],
                columns_of(table),
                names_of(table, self.name),
            )
            rows.repartitionByRange(count, *ORDER).sortWithinPartitions(*ORDER).write.parquet(
                folder
            )
        new = [f"{folder}/{each.path}" for each in files_below(self.spark, folder)]
        self._replace(old, new)
        return Compacted(len(old), len(new))

    def _replace(self, old: list[Any], new: list[str]) -> None:
        """Replace the *old* files by the *new* ones in one commit. Raises OptionError.

        Never deletes the new ones: a commit that is reported as failed may have happened.
        """
        for attempt in range(_ATTEMPTS):
            table = self._load()
            if attempt and new[0] in {each.file.file_path for each in table.scan().plan_files()}:
                return
            try:
                with (
                    once(table).transaction() as change,
                    change.update_snapshot().overwrite() as files,
                ):
                    for each in old:
                        files.delete_data_file(each)
                    for each in parquet_files_to_data_files(table.io, table.metadata, iter(new)):
                        files.append_data_file(each)
                return
            # A small file is not in the table any more, or a column of the new ones is not.
            except (ValidationException, ValueError) as error:
                raise OptionError(
                    f"the Iceberg table {self.name} was changed: {line_of(error)}"
                ) from None
            except CommitFailedException as error:
                if attempt == _ATTEMPTS - 1:
                    raise OptionError(f"the Iceberg table {self.name}: {line_of(error)}") from None

    def _load(self) -> Table:
        try:
            return self._catalog.load_table(self.name)
        except NoSuchTableError:
            raise OptionError(f"there is no Iceberg table {self.name}") from None


def _day(table: Table, task: Any) -> str | None:
    """Return the day of a file; None without one, or if it has other partitions than *table*."""
    if task.file.spec_id != table.spec().spec_id:
        return None
    number = task.file.partition[0]
    return None if number is None else day_of_number(number).isoformat()
