"""Delta tables, changed by the library ``deltalake``.

Spark's tasks write the files of an attempt at a micro-batch to a folder of their own. One commit
adds them to the table, and records the query and the number of the batch as the table's application
transaction: a batch that is recorded is not written again, and two drivers cannot commit the same
one. Files of an attempt that was not committed belong to no version of the table; a vacuum of the
table deletes them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import FileSystem, PyFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from thin_client.spark.error_lines import line_of
from thin_client.spark.lake.files import files_below, qualified
from thin_client.spark.lake.kept_format import refuse_folders
from thin_client.spark.lake.names import (
    DATE,
    TOPIC,
    Partition,
    StoredFile,
    attempt_name,
    is_recorded,
)
from thin_client.spark.lake.rows import arrow_schema, folders, write_files
from thin_client.spark.lake.schemas import new_columns
from thin_client.spark.lake.statistics import delta_statistics
from thin_client.spark.lake.typed import kinds
from thin_client.spark.option_values import OptionError

#: Commits of other writers, between which a batch is tried again.
_ATTEMPTS = 20


@dataclass(slots=True)
class Delta:
    """The table at *path*.

    Args:
        path: a Spark path that is one of the library's too: local, or of ``s3a``, ``abfss``, ``gs``
            or ``hdfs``; credentials of both are set separately.
        target: approximate size of a file in bytes; None: one file for each task, day and topic.
    """

    spark: SparkSession
    path: str
    target: int | None
    _root: str = field(init=False)

    def __post_init__(self) -> None:
        self._root = qualified(self.spark, self.path).rstrip("/")

    def prepare(self, rows: DataFrame) -> None:
        """Create the table partitioned by date and topic, or compare and extend its columns."""
        refuse_folders(self.spark, self.path)
        wanted = arrow_schema(rows, dated=True)
        try:
            table = DeltaTable.create(
                self._root, wanted, mode="ignore", partition_by=[DATE, TOPIC], name="orderlane"
            )
            found = table.metadata().partition_columns
            if found != [DATE, TOPIC]:
                raise OptionError(
                    f"the Delta table {self.path} is partitioned by"
                    f" {', '.join(found) or 'nothing'}: expected {DATE} and {TOPIC}; choose another"
                    " path"
                )
            there = kinds(from_arrow_schema(pa.schema(table.schema())))
            new = new_columns(
                there, kinds(from_arrow_schema(wanted)), f"the Delta table {self.path}"
            )
            if new:
                added = pa.schema([wanted.field(name) for name in new])
                table.alter.add_columns(list(Schema.from_arrow(added).fields))
        except DeltaError as error:
            raise OptionError(f"the Delta table {self.path}: {line_of(error)}") from None

    def checkpoint(self) -> str:
        """Return a folder in *path*; a vacuum leaves it alone, because of its leading ``_``."""
        return f"{self._root}/_checkpoint"

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        """Write the files of *batch*, and add them to the table unless it is recorded."""
        table = DeltaTable(self._root)
        if is_recorded(table.transaction_version(query), number):
            return
        attempt = attempt_name(query, number, uuid.uuid4().hex)
        # Readers of Delta take the columns of partitions from the log, not from files.
        write_files(folders(batch).drop(TOPIC), f"{self._root}/{attempt}", self.target)
        written = files_below(self.spark, f"{self._root}/{attempt}")
        if written:
            self._commit(table, self._actions(attempt, written), query, number)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _actions(self, attempt: str, written: list[StoredFile]) -> list[AddAction]:
        files = PyFileSystem(DeltaStorageHandler(self._root, {}))
        return [_action(files, attempt, each) for each in written]

    def _commit(self, table: DeltaTable, actions: list[AddAction], query: str, number: int) -> None:
        """Add the files unless the batch is recorded meanwhile.

        Never deletes the files: a commit that is reported as failed may have happened, and then the
        recorded batch is this one.
        """
        # The library refuses a transaction of the same query that it has not read yet. Repeating a
        # commit after others is left to the loop below, which reads the batch's number again.
        properties = CommitProperties(
            app_transactions=[Transaction(query, number)], max_commit_retries=0
        )
        for attempt in range(_ATTEMPTS):
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    [DATE, TOPIC],
                    commit_properties=properties,
                )
                return
            except DeltaError as error:
                table = DeltaTable(self._root)
                if is_recorded(table.transaction_version(query), number):
                    return
                if attempt == _ATTEMPTS - 1 or not isinstance(error, CommitFailedError):
                    raise OptionError(f"the Delta table {self.path}: {line_of(error)}") from None


def _action(files: FileSystem, attempt: str, written: StoredFile) -> AddAction:
    path = f"{attempt}/{written.path}"
    with files.open_input_file(path) as file:
        statistics = delta_statistics(pq.read_metadata(file))
    partition = Partition.of(written.path)
    values = {DATE: partition.date, TOPIC: partition.topic}
    return AddAction(path, written.size, values, written.modified_ms, True, statistics)
