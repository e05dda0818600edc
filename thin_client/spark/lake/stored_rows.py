"""Rows of an archive or of other files, all at once or day by day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DateType, IntegerType, StringType, StructField, StructType

from thin_client.spark.lake.names import DATE
from thin_client.spark.lake.parts import Part, depends_on_columns
from thin_client.spark.option_values import OptionError

_NUMBER = "_part"


class StoredRows(Protocol):
    """Rows at one place. Each *where* is a condition in SQL."""

    def rows(self, where: str | None = None) -> DataFrame:
        """Return the rows. Raises OptionError."""

    def days(self, where: str | None = None) -> list[str]:
        """Return the days that have rows, or may have some if *where* depends on more than the day;
        the empty text stands for rows without one. Raises OptionError.
        """

    def rows_of(self, day: str, where: str | None = None) -> DataFrame:
        """Return the rows of one day, without reading those of others. Raises OptionError."""


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """Rows of Parquet files. Spark leaves out the folders of other days."""

    whole: DataFrame

    def rows(self, where: str | None = None) -> DataFrame:
        """Return the rows."""
        return filtered(self.whole, where)

    def days(self, where: str | None = None) -> list[str]:
        """Return the days that have rows. Raises OptionError."""
        return days_in(self.rows(where))

    def rows_of(self, day: str, where: str | None = None) -> DataFrame:
        """Return the rows of one day."""
        return filtered(of_day(self.whole, day), where)


def filtered(rows: DataFrame, where: str | None) -> DataFrame:
    """Return the *rows* that meet *where*."""
    return rows if where is None else rows.where(where)


def days_in(rows: DataFrame) -> list[str]:
    """Return the days of *rows*, sorted. Raises OptionError."""
    if DATE not in rows.columns:
        raise OptionError(
            f"progress needs the column {DATE!r}, which the files do not have: omit progress"
        )
    text = sf.col(DATE).cast("string")
    return sorted({row[0] or "" for row in rows.select(text).distinct().collect()})


def of_day(rows: DataFrame, day: str) -> DataFrame:
    """Return the *rows* of *day*, by a condition with which Spark can leave out files."""
    column, kind = sf.col(DATE), rows.schema[DATE].dataType
    text = column.cast("string")
    if not day:
        return rows.where(text.isNull() | (text == ""))
    if isinstance(kind, DateType | StringType):
        return rows.where(column == sf.lit(day).cast(kind))
    return rows.where(text == day)


def holding(
    spark: SparkSession, parts: Sequence[Part], columns: StructType, where: str | None
) -> Sequence[Part]:
    """Return the *parts* that can have rows with *where*: all of them, if it depends on more than
    their values. *columns* has the types of the values.
    """
    names = list(parts[0].values) if parts else []
    if where is None or not names or not depends_on_columns(where):
        return parts
    if any(list(part.values) != names for part in parts):
        return parts
    kinds = [StructField(name, columns[name].dataType) for name in names]
    rows = [(number, *part.values.values()) for number, part in enumerate(parts)]
    values = spark.createDataFrame(rows, StructType([StructField(_NUMBER, IntegerType()), *kinds]))
    try:
        found = values.where(where).select(_NUMBER).collect()
    except AnalysisException:  # it has other columns too
        return parts
    return [parts[number] for number in sorted(row[0] for row in found)]
