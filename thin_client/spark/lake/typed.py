"""Typed columns of JSON bodies, beside the bodies themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Self

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from thin_client.spark.error_lines import line_of
from thin_client.spark.lake import bounds, decimals
from thin_client.spark.lake.schemas import FITS, BodySchema, check_names, merged
from thin_client.spark.option_values import OptionError

#: Spark's column for what does not fit; no column of a schema may have its name.
_MISFIT = "_misfit"
#: Columns that are dropped again, with a character that no column of a schema has.
_PARSED, _AGAIN = "parsed ", "again "
#: Types without parts.
_STORED = (
    *(NumericType, StringType, BinaryType, BooleanType),
    *(DateType, TimestampType, TimestampNTZType),
)


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """The columns of each topic's bodies."""

    topics: tuple[tuple[str, StructType], ...]

    @classmethod
    def of(
        cls, spark: SparkSession, schemas: Iterable[BodySchema], *, reserved: Collection[str]
    ) -> Self:
        """Return the types of *schemas*, whose columns have no *reserved* name.

        Raises OptionError.
        """
        found = tuple((each.topic, _columns(spark, each, reserved)) for each in schemas)
        merged((topic, kinds(columns)) for topic, columns in found)
        return cls(found)

    def added_to(self, rows: DataFrame) -> DataFrame:
        """Return *rows* of the source with the columns of all topics, and FITS.

        A field that is absent or does not fit is null.
        """
        text = sf.col("value").cast("string")
        parsed = {}
        for number, (topic, columns) in enumerate(self.topics):
            schema = StructType([*columns.fields, StructField(_MISFIT, StringType())])
            body = decimals.parsed(text, schema, misfit=_MISFIT)
            parsed[f"{_PARSED}{number}"] = sf.when(sf.col("topic") == topic, body)
            if (again := bounds.again(text, columns)) is not None:
                parsed[f"{_AGAIN}{number}"] = sf.when(sf.col("topic") == topic, again)
        whole = rows.withColumns(parsed)
        names = merged((topic, kinds(columns)) for topic, columns in self.topics)
        fits = [
            sf.when(
                sf.col(f"{_PARSED}{number}").isNotNull(),
                ~reduce(or_, self._beyond(number).values(), _misfit(number)),
            )
            for number in range(len(self.topics))
        ]
        return whole.withColumns(
            {name: sf.coalesce(*self._places(name)) for name in names} | {FITS: sf.coalesce(*fits)}
        ).drop(*parsed)

    def _places(self, name: str) -> list[Column]:
        """Return the column *name* of each topic that has it."""
        return [
            found if (wrong := self._beyond(number).get(name)) is None else sf.when(~wrong, found)
            for number, (_, columns) in enumerate(self.topics)
            if name in columns.names
            for found in (sf.col(f"{_PARSED}{number}")[name],)
        ]

    def _beyond(self, number: int) -> dict[str, Column]:
        """Return whether a column of a topic has a value beyond its range, by name."""
        _, columns = self.topics[number]
        wide = sf.col(f"{_AGAIN}{number}")
        found = {
            each.name: bounds.beyond(each.name, each.dataType, sf.col(f"{_PARSED}{number}"), wide)
            for each in columns
        }
        return {name: wrong for name, wrong in found.items() if wrong is not None}


def _misfit(number: int) -> Column:
    return sf.col(f"{_PARSED}{number}")[_MISFIT].isNotNull()


def kinds(columns: StructType) -> dict[str, str]:
    """Return the types of *columns* as SQL, by name."""
    return {field.name: field.dataType.simpleString() for field in columns}


def _is_stored(kind: DataType) -> bool:
    """Return whether archives of each format, and their readers, have columns of *kind*."""
    match kind:
        case ArrayType():
            return _is_stored(kind.elementType)
        case MapType():
            return _is_stored(kind.keyType) and _is_stored(kind.valueType)
        case StructType():
            different = {name.lower() for name in kind.names}
            return 0 < len(kind) == len(different) and all(_is_stored(e.dataType) for e in kind)
    return isinstance(kind, _STORED)


def _columns(spark: SparkSession, schema: BodySchema, reserved: Collection[str]) -> StructType:
    where = f"the schema of topic {schema.topic}"
    try:
        sql = schema.columns or _of_example(spark, schema.example or "")
        found = StructType.fromDDL(sql)
    except PySparkException as error:
        raise OptionError(f"{where}: {line_of(error)}") from None
    if not isinstance(found, StructType):
        raise OptionError(f"{where} is {sql!r}: expected columns, as in 'amount bigint'")
    check_names(found.names, reserved={*reserved, FITS, _MISFIT}, where=where)
    for column in found:
        if not _is_stored(column.dataType):
            raise OptionError(
                f"{where}: {column.name} is {column.dataType.simpleString()}: expected numbers,"
                " texts, times and booleans, in arrays, maps and structs with different names"
            )
    return found


def _of_example(spark: SparkSession, example: str) -> str:
    (row,) = spark.range(1).select(sf.schema_of_json(sf.lit(example))).collect()
    return str(row[0])
