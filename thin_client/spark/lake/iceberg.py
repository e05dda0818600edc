"""Iceberg tables, changed by the library ``pyiceberg`` through the user's catalog.

Spark's tasks write the files of an attempt at a micro-batch to a folder of their own. One commit
adds them to the table, and sets a property of the table to the number of the query's batch: a batch
that is recorded is not written again, and two drivers cannot commit the same one. Files of an
attempt that was not committed belong to no snapshot; the removal of orphan files, which engines
such as Spark have for Iceberg, deletes them.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from thin_client.spark.error_lines import line_of, without_secrets
from thin_client.spark.lake.files import files_below
from thin_client.spark.lake.names import (
    TIMESTAMP_DAY,
    TOPIC,
    attempt_name,
    is_recorded,
    property_of,
)
from thin_client.spark.lake.rows import arrow_schema, folders, write_files
from thin_client.spark.lake.schemas import new_columns
from thin_client.spark.lake.typed import kinds
from thin_client.spark.option_values import OptionError

_TIMESTAMP = "timestamp"
#: Properties of tables that are created here: each commit writes a file of metadata, and otherwise
#: all of them remain.
_NEW = {"write.metadata.delete-after-commit.enabled": "true"}
_RETRIES = "commit.retry.num-retries"
#: Commits of other writers, between which a batch is tried again, and the longest pause before.
_ATTEMPTS, _PAUSE_S = 20, 1.0


@dataclass(slots=True)
class Iceberg:
    """The table *name* of a catalog.

    Args:
        name: namespace and table, as in ``lake.orders``.
        options: of the catalog, as ``pyiceberg`` names them; ``name`` is the catalog's own name in
            the configuration of ``pyiceberg`` (default: ``default``).
        target: approximate size of a file in bytes; None: one file for each task, day and topic.
    """

    spark: SparkSession
    name: str
    options: Mapping[str, str]
    target: int | None
    _catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        self._catalog = open_catalog(self.name, self.options)

    def prepare(self, rows: DataFrame) -> None:
        """Create the table partitioned by day and topic, or compare and extend its columns."""
        wanted = _columns(rows)
        try:
            table = self._catalog.load_table(self.name)
        except NoSuchTableError:
            self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            with (
                self._catalog.create_table_transaction(
                    self.name, wanted, properties=_NEW
                ) as created,
                created.update_spec() as parts,
            ):
                parts.add_field(_TIMESTAMP, DayTransform(), TIMESTAMP_DAY)
                parts.add_field(TOPIC, IdentityTransform(), TOPIC)
            return
        check_partitions(table)
        there = kinds(from_arrow_schema(table.schema().as_arrow()))
        new_columns(there, kinds(from_arrow_schema(wanted)), f"the Iceberg table {self.name}")
        with table.update_schema() as columns:
            columns.union_by_name(wanted)

    def checkpoint(self) -> str:
        """Return a folder at the table's location."""
        return f"{self._catalog.load_table(self.name).location().rstrip('/')}/_checkpoint"

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        """Write the files of *batch*, and add them to the table unless it is recorded."""
        table = self._catalog.load_table(self.name)
        if _has(table, query, number):
            return
        attempt = attempt_name(query, number, uuid.uuid4().hex)
        folder = f"{table.location().rstrip('/')}/data/{attempt}"
        write_files(folders(_stored(batch)), folder, self.target)
        written = [f"{folder}/{each.path}" for each in files_below(self.spark, folder)]
        if written:
            self._commit(table, written, query, number)

    def close(self) -> None:
        """Close the connections to the catalog; else they would stay open until Python's garbage
        collection, and each micro-batch opens some.
        """
        self._catalog.close()

    def _commit(self, table: Table, paths: list[str], query: str, number: int) -> None:
        """Add the files unless the batch is recorded meanwhile.

        Never deletes the files: a commit that is reported as failed may have happened, and then the
        recorded batch is this one.
        """
        for attempt in range(_ATTEMPTS):
            try:
                with once(table).transaction() as change:
                    change.add_files(paths, check_duplicate_files=False)
                    change.set_properties({property_of(query): str(number)})
                return
            except CommitFailedException as error:
                table = self._catalog.load_table(self.name)
                if _has(table, query, number):
                    return
                if attempt == _ATTEMPTS - 1:
                    raise OptionError(f"the Iceberg table {self.name}: {line_of(error)}") from None
                time.sleep(random.uniform(0, _PAUSE_S))


def open_catalog(name: str, options: Mapping[str, str]) -> Catalog:
    """Return the catalog of the table *name*. Raises OptionError."""
    if "." not in name.strip("."):
        raise OptionError(f"the Iceberg table is {name!r}: expected NAMESPACE.TABLE")
    own = dict(options)
    try:
        return load_catalog(own.pop("name", None), **own)
    except (ValueError, ImportError) as error:
        raise OptionError(
            f"no Iceberg catalog: {without_secrets(' '.join(str(error).split()))}"
        ) from None


def _columns(rows: DataFrame) -> pa.Schema:
    """Return the columns of a table for *rows*: Iceberg has no integers of 8 or 16 bits."""
    return arrow_schema(rows, dated=False, small_integers=False)


def _stored(rows: DataFrame) -> DataFrame:
    """Return *rows* with the types of their table."""
    given = kinds(rows.schema)
    changed = {
        each.name: sf.col(each.name).cast(each.dataType)
        for each in from_arrow_schema(_columns(rows))
        if given[each.name] != each.dataType.simpleString()
    }
    return rows.withColumns(changed) if changed else rows  # Spark Connect refuses none


def once(table: Table) -> Table:
    """Return *table*, whose next commit fails if another writer changed the table meanwhile.

    By itself the library would repeat the commit without looking for the batch in the change. The
    property counts for this object only: a commit stores its changes, not the table's properties.
    """
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _has(table: Table, query: str, number: int) -> bool:
    return is_recorded(table.properties.get(property_of(query)), number)


def check_partitions(table: Table) -> None:
    """Raise OptionError unless *table* is partitioned as an archive is."""
    found = [
        (str(each.transform), table.schema().find_column_name(each.source_id))
        for each in table.spec().fields
    ]
    if found != [("day", _TIMESTAMP), ("identity", TOPIC)]:
        words = ", ".join(f"{transform} of {column}" for transform, column in found) or "nothing"
        raise OptionError(
            f"the Iceberg table {'.'.join(table.name())} is partitioned by {words}: expected the"
            f" day of {_TIMESTAMP}, and {TOPIC}; choose another table"
        )
