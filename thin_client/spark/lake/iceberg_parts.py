"""The parts of an Iceberg table, from its manifests."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
)
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform

from thin_client.spark.lake.names import DATE, TOPIC
from thin_client.spark.lake.parts import Part, day_of_number, span_us
from thin_client.spark.option_values import OptionError

_TIMESTAMP = "timestamp"


def parts_of(table: Table, name: str, *, day: str | None = None) -> list[Part]:
    """Return the files of *table*, by day and topic as far as it is partitioned by them.

    *day*: only the files that may have rows of this day; of the empty text, rows without a time.
    Raises OptionError for a table *name* with deleted rows in its files.
    """
    condition: BooleanExpression = AlwaysTrue() if day is None else within(day)
    files: defaultdict[tuple[tuple[str, object], ...], list[str]] = defaultdict(list)
    for each in table.scan(row_filter=condition).plan_files():
        if each.delete_files:
            raise OptionError(
                f"the Iceberg table {name} has files with deleted rows, which this job cannot read:"
                " rewrite them first"
            )
        files[tuple(_values(table, each.file).items())].append(each.file.file_path)
    return [Part(dict(values), tuple(sorted(paths))) for values, paths in files.items()]


def within(day: str) -> BooleanExpression:
    """Return the condition for rows of *day*; of the empty text, for rows without a time."""
    if not day:
        return IsNull(_TIMESTAMP)
    begin_us, end_us = span_us(day)
    return And(GreaterThanOrEqual(_TIMESTAMP, begin_us), LessThan(_TIMESTAMP, end_us))


def _values(table: Table, file: Any) -> dict[str, object]:
    """Return the day and the topic of the rows of *file*, as far as its partition tells."""
    schema = table.schema()
    found: dict[str, object] = {}
    for place, field in enumerate(table.specs()[file.spec_id].fields):
        column, value = schema.find_column_name(field.source_id), file.partition[place]
        if isinstance(field.transform, DayTransform) and column == _TIMESTAMP:
            found[DATE] = None if value is None else day_of_number(value)
        elif isinstance(field.transform, IdentityTransform) and column == TOPIC:
            found[TOPIC] = value
    return found
