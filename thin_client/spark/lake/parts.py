"""The parts of a table: files whose rows have the same day, and the same topic. Pure.

A job that works day by day reads the files of a day only. Which they are is in the metadata of the
table, so that no row has to be read for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from thin_client.spark.lake.names import DATE

_FIRST_DAY = date(1970, 1, 1)
_DAY_US = 86_400_000_000
#: A word before a parenthesis in SQL, and those after which the value of a condition depends on
#: its columns alone: others may be functions such as ``rand``.
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
_HARMLESS = frozenset({"and", "cast", "date", "in", "like", "not", "or", "to_date"})


@dataclass(frozen=True, slots=True)
class Part:
    """Files of a table.

    Args:
        values: what all their rows have in some columns, by name; for a day a date or None.
        files: their paths, as the library of the format names them.
    """

    values: Mapping[str, object]
    files: tuple[str, ...]

    @property
    def day(self) -> str:
        """The day, as in ``2026-01-31``; empty for rows without one."""
        value = self.values[DATE]
        return "" if value is None else str(value)


def days_of(parts: Iterable[Part]) -> list[str] | None:
    """Return the days of *parts*, sorted; None if the metadata does not tell those of each."""
    all_parts = list(parts)
    if all_parts and all(DATE in each.values for each in all_parts):
        return sorted({each.day for each in all_parts})
    return None


def depends_on_columns(condition: str) -> bool:
    """Return whether the SQL *condition* has the same result for the same values of its columns, as
    far as its text tells.
    """
    return all(found[1].lower() in _HARMLESS for found in _CALL.finditer(condition))


def day_of_number(number: int) -> date:
    """Return the day that is *number* days after the first of 1970."""
    return _FIRST_DAY + timedelta(days=number)


def span_us(day: str) -> tuple[int, int]:
    """Return the begin and the exclusive end of *day* in UTC, in microseconds since 1970."""
    number = (date.fromisoformat(day) - _FIRST_DAY).days
    return number * _DAY_US, (number + 1) * _DAY_US


def follows(day: str, other: str) -> bool:
    """Return whether *other* is the day after *day*; False if one of the texts is no day."""
    try:
        return date.fromisoformat(day) + timedelta(days=1) == date.fromisoformat(other)
    except (ValueError, OverflowError):
        return False
