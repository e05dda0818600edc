"""Reads histories: merges the lines of several files into one stream of events in time order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson

from proxy.errors import OrderlaneError

Event = dict[str, Any]


class HistoryError(OrderlaneError):
    """Raised if a history is unreadable or contains too little to be judged."""


@dataclass(slots=True)
class HistoryReader:
    """Streams events; memory does not grow with the length of the files.

    The last line of a killed process may be torn; it is skipped and counted in ``torn``.
    """

    paths: Sequence[Path]
    torn: int = 0

    def events(self) -> Iterator[Event]:
        """Return all events by ``t_ns``. Raises HistoryError at the first invalid line."""
        if len(self.paths) == 1:
            return self._file(self.paths[0])
        return heapq.merge(*map(self._file, self.paths), key=itemgetter("t_ns"))

    def _file(self, path: Path) -> Iterator[Event]:
        doubtful = 0  # number of an invalid line: torn, if its process wrote no more
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    event = event_of(line)
                    if doubtful and (event is None or event["e"] != "start"):
                        raise HistoryError(f"{path}, line {doubtful}: not an event of a history")
                    if event is None:
                        doubtful = number
                        self.torn += 1
                    else:
                        doubtful = 0
                        yield event
        except OSError as error:
            raise HistoryError(f"{path}: cannot be read: {error.strerror or error}") from None


def event_of(line: bytes | str) -> Event | None:
    """Return the event in *line*; None if the line is torn or not from a history."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if type(event) is dict and type(event.get("e")) is str and type(event.get("t_ns")) is int:
        return event
    return None
