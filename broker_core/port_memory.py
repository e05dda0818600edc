"""Memory that all connections of a port hold, up to a limit. No I/O.

Two kinds of bytes count. *Buffered* ones are incomplete requests and unread answers: above the
limit, connections are dropped, beginning with the one that buffers most, of the address that
buffers most. *Handled* ones are requests until their answers: above the limit, further requests are
refused; a quarter of it is kept for small ones.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, Protocol, TypeVar

#: The limit of a port unless its settings have another one.
MAX_INFLIGHT_BYTES = 256 * 1024 * 1024
#: Size up to which a request is small, in bytes.
SMALL_BYTES = 8 * 1024
_SHARE_OF_LARGE = 3 / 4
#: Smaller changes of what a connection buffers do not count.
_STEP_BYTES = 4096


class Holder(Protocol):
    """A connection as far as its memory is concerned."""

    @property
    def address(self) -> str:
        """The peer's address, without its port."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes that it buffers now; 0 once it is closed."""

    def drop(self) -> None:
        """Close it at once, because it buffers too much."""


H = TypeVar("H", bound=Holder)


class PortMemory(Generic[H]):
    """The bytes of one port. One event loop only."""

    def __init__(self, limit_bytes: int) -> None:
        """Allow *limit_bytes* of each kind."""
        self.limit_bytes = limit_bytes
        #: Bytes of requests until their answers.
        self.handled_bytes = 0
        #: Bytes of incomplete requests and unread answers, as reported.
        self.buffered_bytes = 0
        #: Connections that were dropped, and requests that were refused.
        self.dropped = 0
        self.refused = 0
        self._buffered: dict[H, int] = {}

    def buffers(self, holder: H, held_bytes: int) -> None:
        """Note that *holder* buffers *held_bytes*. Drops connections if there is no room for them,
        perhaps this one.
        """
        change = held_bytes - self._buffered.get(holder, 0)
        if not change or (held_bytes and -_STEP_BYTES < change < _STEP_BYTES):
            return
        self._set(holder, held_bytes)
        if self.buffered_bytes > self.limit_bytes:
            self._make_room()

    def handles(self, more_bytes: int) -> None:
        """Count *more_bytes* of requests being handled; fewer if negative."""
        self.handled_bytes += more_bytes

    def admits(self, request_bytes: int) -> bool:
        """Return whether there is room for a request; count the refusal if not."""
        used = self.handled_bytes + request_bytes
        if used <= self.limit_bytes * _SHARE_OF_LARGE:
            return True
        if request_bytes <= SMALL_BYTES and used <= self.limit_bytes:
            return True
        self.refused += 1
        return False

    def _set(self, holder: H, held_bytes: int) -> None:
        self.buffered_bytes += held_bytes - self._buffered.pop(holder, 0)
        if held_bytes:
            self._buffered[holder] = held_bytes

    def _make_room(self) -> None:
        for holder in list(self._buffered):  # answers may have been read since the last report
            self._set(holder, holder.buffered_bytes)
        while self.buffered_bytes > self.limit_bytes:
            largest = self._largest()
            self._set(largest, 0)
            self.dropped += 1
            largest.drop()

    def _largest(self) -> H:
        by_address: Counter[str] = Counter()
        for holder, held_bytes in self._buffered.items():
            by_address[holder.address] += held_bytes
        [(address, _)] = by_address.most_common(1)
        of_it = (each for each in self._buffered if each.address == address)
        return max(of_it, key=self._buffered.__getitem__)
