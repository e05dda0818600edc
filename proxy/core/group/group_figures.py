"""Reports of the clients of one group about their handlers and requests. Pure.

Reports are counts by class (``ClientFigures`` of the IDL), so the memory is bounded by the number
of classes, whatever the traffic, and a message costs nothing here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

#: Counts are kept for one to two of these.
_WINDOW_NS = 300 * 1_000_000_000
#: Classes beyond these stand for more than a year; counts above are no report of 250 ms.
_MAX_CLASS, _MAX_COUNT = 800, 1_000_000
_MAX_CLIENTS = 10_000
_MAX_PLACES = 1_000_000


@dataclass(frozen=True, slots=True)
class Observed:
    """Figures of a group's clients: the numbers of clients, of their handlers and of messages that
    may wait at them, and counts of handling times and round trips by class.

    ``at_ns`` is the time of the last report; None: there was none.
    """

    clients: int
    handlers: int
    prefetch: int
    handling: Mapping[int, int]
    round_trips: Mapping[int, int]
    at_ns: int | None


@dataclass(slots=True)
class _Client:
    connection: int
    handlers: int
    prefetch: int


@dataclass(slots=True)
class _Counts:
    """Counts since ``since_ns``."""

    since_ns: int
    handling: Counter[int] = field(default_factory=Counter)
    round_trips: Counter[int] = field(default_factory=Counter)


class GroupFigures:
    """Figures of the last five to ten minutes with reports.

    Figures of clients that have left are kept until another client reports. Once all have left, a
    new client starts with none: it may be another version, with other handlers.

    Caller: the group lane.
    """

    __slots__ = ("_at_ns", "_before", "_clients", "_now", "_open")

    def __init__(self, open_connections: Container[int]) -> None:
        """*open_connections* is a live view of the clients' connections."""
        self._open = open_connections
        self._clients: dict[str, _Client] = {}
        self._before = self._now = _Counts(0)
        self._at_ns: int | None = None

    def note(
        self,
        client: str,
        connection: int,
        *,
        handlers: int,
        prefetch: int,
        handling: Mapping[int, int],
        round_trips: Mapping[int, int],
        now_ns: int,
    ) -> None:
        """Add the report of *client*, over *connection*. Impossible values are left out."""
        if client not in self._clients and not self._any_left():
            self._clients.clear()
            self._before = self._now = _Counts(now_ns)
        elif now_ns - self._now.since_ns > _WINDOW_NS:
            self._before, self._now = self._now, _Counts(now_ns)
            self._forget_lost()
        if client in self._clients or len(self._clients) < _MAX_CLIENTS:
            self._clients[client] = _Client(connection, _within(handlers), _within(prefetch))
        _add(self._now.handling, handling)
        _add(self._now.round_trips, round_trips)
        self._at_ns = now_ns

    def observed(self) -> Observed:
        """Return the figures: of the clients that are connected, or, if none is, of the last."""
        clients = [each for each in self._clients.values() if each.connection in self._open]
        clients = clients or list(self._clients.values())
        counts = [self._now] if self._before is self._now else [self._before, self._now]
        handling: Counter[int] = Counter()
        round_trips: Counter[int] = Counter()
        for each in counts:
            handling.update(each.handling)
            round_trips.update(each.round_trips)
        return Observed(
            clients=len(clients),
            handlers=sum(each.handlers for each in clients),
            prefetch=sum(each.prefetch for each in clients),
            handling=dict(sorted(handling.items())),
            round_trips=dict(sorted(round_trips.items())),
            at_ns=self._at_ns,
        )

    def _any_left(self) -> bool:
        return any(each.connection in self._open for each in self._clients.values())

    def _forget_lost(self) -> None:
        if self._any_left():
            self._clients = {
                name: each for name, each in self._clients.items() if each.connection in self._open
            }


def _within(places: int) -> int:
    return min(max(places, 0), _MAX_PLACES)


def _add(counts: Counter[int], reported: Mapping[int, int]) -> None:
    for place, count in reported.items():
        if 0 <= place <= _MAX_CLASS and 0 < count <= _MAX_COUNT:
            counts[place] += count
