"""Counts the connections of a port, from the moment that they are accepted. No I/O."""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

C = TypeVar("C")


class ConnectionCounts(Generic[C]):
    """Connections of one port by the address of their client, without its port.

    A connection counts from ``enter`` on, which is before its TLS handshake, until ``leave``.
    """

    def __init__(self, most: int, most_per_address: int) -> None:
        """Allow *most* connections, and *most_per_address* from one address."""
        self._most = most
        self._most_per_address = most_per_address
        self._address_of: dict[C, str] = {}
        self._number: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._address_of)

    def __contains__(self, connection: C) -> bool:
        return connection in self._address_of

    def enter(self, connection: C, address: str) -> bool:
        """Count *connection*; return False if it is one too many. It counts in either case."""
        if connection not in self._address_of:
            self._address_of[connection] = address
            self._number[address] += 1
        return not self.is_full(address, more=0)

    def is_full(self, address: str, *, more: int = 1) -> bool:
        """Return whether *more* connections of *address* would exceed a limit."""
        return self.exceeds_total(more=more) or (
            self._number[address] + more > self._most_per_address
        )

    def exceeds_total(self, *, more: int = 1) -> bool:
        """Return whether *more* connections of any address would exceed the total limit."""
        return len(self._address_of) + more > self._most

    def has(self, address: str) -> bool:
        """Return whether *address* has a connection."""
        return address in self._number

    def leave(self, connection: C) -> None:
        """Count *connection* no more; no effect if it does not count."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            self._number[address] -= 1
            if not self._number[address]:
                del self._number[address]
