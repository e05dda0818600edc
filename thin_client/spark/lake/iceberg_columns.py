"""The columns of an Iceberg table in its Parquet files, which may have earlier names there.

A file keeps the names that the columns had when it was written. The name mapping of the table has
all names of a column: the library and engines keep it up to date, since files that Spark writes
have no ids of columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.name_mapping import MappedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from thin_client.spark.option_values import OptionError

#: The names of each column in files, the present one first.
Names = Mapping[str, Sequence[str]]


def columns_of(table: Table) -> StructType:
    """Return the columns of *table*, with Spark's types."""
    found: StructType = from_arrow_schema(table.schema().as_arrow())
    return found


def names_of(table: Table, name: str) -> Names:
    """Return the names that each column of *table* has in files.

    Without a mapping, those of earlier schemas. Raises OptionError for a table *name* whose columns
    cannot be found by names.
    """
    mapping = table.name_mapping()
    mappings = [mapping] if mapping else [each.name_mapping for each in table.schemas().values()]
    known: dict[int | None, dict[str, None]] = {}
    for field in _all(field for each in mappings for field in each):
        known.setdefault(field.field_id, {}).update(dict.fromkeys(field.names))
    found = {}
    for column in table.schema().name_mapping:
        (own,) = column.names
        if any(len(known.get(each.field_id, ())) > 1 for each in _all(column.fields)):
            raise OptionError(
                f"a field inside the column {own} of the Iceberg table {name} was renamed, which"
                " this job cannot read: rewrite the table's files with an engine first"
            )
        found[own] = tuple({own: None} | known.get(column.field_id, {}))
    counts = Counter(each for names in found.values() for each in names)
    if shared := sorted(each for each, count in counts.items() if count > 1):
        raise OptionError(
            f"{shared[0]} was the name of several columns of the Iceberg table {name}, which this"
            " job cannot read: rewrite the table's files with an engine first"
        )
    return found


def _all(fields: Iterable[MappedField]) -> Iterator[MappedField]:
    """Yield *fields* and those inside them."""
    for each in fields:
        yield each
        yield from _all(each.fields)


def read_files(
    spark: SparkSession, files: Iterable[str], columns: StructType, names: Names
) -> DataFrame:
    """Return the rows of Parquet *files* with *columns*, which have *names* in the files.

    A file has a column under one of the names, so the others are null.
    """
    exact = spark.conf.get("spark.sql.caseSensitive", "false") == "true"
    stored = {each: names[each] if exact else _differing(names[each]) for each in names}
    fields = [StructField(name, each.dataType) for each in columns for name in stored[each.name]]
    rows = spark.read.schema(StructType(fields)).parquet(*files)
    if len(fields) == len(columns):
        return rows
    return rows.select(
        *(sf.coalesce(*map(sf.col, stored[each.name])).alias(each.name) for each in columns)
    )


def _differing(names: Sequence[str]) -> Sequence[str]:
    """Return the first of those *names* that differ in case only."""
    found: dict[str, str] = {}
    for each in names:
        found.setdefault(each.lower(), each)
    return tuple(found.values())
