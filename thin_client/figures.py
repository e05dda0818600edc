"""A client's measurements of its handlers and requests, for operators. Pure.

Times are counted in classes, so that recording one costs little and a report is small: microseconds
up to 31, then 16 classes per power of two, so a class is at most 6 % wide. The proxy forwards the
counts to ``orderlane order-key simulate``.
"""

from __future__ import annotations

from collections.abc import Callable

from thrift_idl import consumer

#: Interval between two reports.
_EVERY_NS = 250_000_000
_FINE_BITS = 5


def class_of(ns: int) -> int:
    """Return the class of a time, as ``ClientFigures`` of the IDL numbers them."""
    us = ns // 1000
    if us < 1 << _FINE_BITS:
        return max(us, 0)
    bits = us.bit_length() - _FINE_BITS
    return (bits << _FINE_BITS - 1) + (us >> bits)


def bounds_ns(place: int) -> tuple[int, int]:
    """Return the first time of a class, and of the next one, in ns. Reverses ``class_of``."""
    return _first_us(place) * 1000, _first_us(place + 1) * 1000


def _first_us(place: int) -> int:
    bits = max(0, (place >> _FINE_BITS - 1) - 1)
    return place - (bits << _FINE_BITS - 1) << bits


class Figures:
    """Times since the last report. Callers hold the session's lock, if it has one."""

    __slots__ = (
        "_handled_ns",
        "_handlers",
        "_handling",
        "_prefetch",
        "_reported_ns",
        "_round_trips",
        "handled",
    )

    def __init__(self, *, handlers: int, prefetch: int) -> None:
        """Describe a client with this number of handlers, and of messages that may wait."""
        self._handlers, self._prefetch = handlers, prefetch
        self._handled_ns: list[int] = []  # since the last request
        self._handling: dict[int, int] = {}
        self._round_trips: dict[int, int] = {}
        self._reported_ns: int | None = None
        #: Counts one handled message, which took this time in ns.
        self.handled: Callable[[int], None] = self._handled_ns.append

    def answered(self, took_ns: int) -> None:
        """Count one request that the proxy answered at once."""
        place = class_of(took_ns)
        self._round_trips[place] = self._round_trips.get(place, 0) + 1

    def report(self, now_ns: int, *, last: bool = False) -> consumer.ClientFigures | None:
        """Return the next report, with all that was counted since the last one; None if it is too
        soon for one, and not one of the *last*. Called for each request.
        """
        self._classify()
        since_ns = self._reported_ns
        if since_ns is not None and now_ns - since_ns < _EVERY_NS and not last:
            return None
        self._reported_ns = now_ns
        handling, self._handling = self._handling, {}
        round_trips, self._round_trips = self._round_trips, {}
        return consumer.ClientFigures(
            handlers=self._handlers,
            prefetch=self._prefetch,
            handling=handling or None,
            roundTrips=round_trips or None,
        )

    def _classify(self) -> None:
        counts = self._handling
        for took_ns in self._handled_ns:
            us = took_ns // 1000  # as class_of, which would be another call for every message
            if us >= 32:
                bits = us.bit_length() - 5
                us = (bits << 4) + (us >> bits)
            counts[us] = counts.get(us, 0) + 1
        self._handled_ns.clear()
