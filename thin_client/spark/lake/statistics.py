"""Statistics of a Parquet file, as the log of a Delta table contains them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

#: Columns by which files are chosen; the others are long, or differ in every row.
_COLUMNS = ("qid", "offset", "timestamp", "bornTimestamp")


def delta_statistics(footer: Any) -> str:
    """Return the statistics of the file with the PyArrow metadata *footer*, as JSON.

    A column without a minimum, maximum or count of nulls in every row group is left out.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, position in _positions(footer).items():
        found = [
            footer.row_group(group).column(position).statistics
            for group in range(footer.num_row_groups)
        ]
        if not found or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        ranges = [each for each in found if each.has_min_max]
        # Without a range, a row group has only nulls, or values too long for one.
        if ranges and all(each.has_min_max or each.num_values == 0 for each in found):
            least[name] = _text(min(each.min for each in ranges))
            most[name] = _text(max(each.max for each in ranges))
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": least,
            "maxValues": most,
            "nullCount": nulls,
        }
    )


def _positions(footer: Any) -> Mapping[str, int]:
    schema = footer.schema
    paths = {schema.column(number).path: number for number in range(len(schema))}
    return {name: paths[name] for name in _COLUMNS if name in paths}


def _text(value: Any) -> Any:
    """Return *value* as JSON has it: times in UTC, with microseconds."""
    if isinstance(value, datetime):
        there = value.astimezone(UTC) if value.tzinfo else value
        # The year of ``strftime`` has fewer than four digits before the year 1000.
        return f"{there.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    return value
