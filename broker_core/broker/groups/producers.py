"""Producer groups: their clients, which brokers ask about transactions.

A client counts for as long as a member of a consumer group does (``groups.py``). The times are
monotonic nanoseconds. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from broker_core.broker.groups.groups import (
    EXPIRY_NS,
    UNKNOWN_PROGRAM,
    ByConnection,
    Member,
    Membership,
    Program,
)
from broker_core.names import Group

C = TypeVar("C", bound=Hashable)


class Producers(Generic[C]):
    """All producer groups with clients."""

    def __init__(self) -> None:
        self._groups: dict[Group, dict[str, Member[C]]] = {}
        self._clients = 0
        self._by_connection: ByConnection[C] = ByConnection()
        self._quiet_until_ns = 0  # until then no client's time ends

    @property
    def memberships(self) -> int:
        """Number of clients over all groups; a client of two groups counts twice."""
        return self._clients

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups)

    def heartbeat(
        self,
        client_id: str,
        connection: C,
        groups: Iterable[Group],
        *,
        now_ns: int,
        expiry_ns: int = EXPIRY_NS,
        program: Program = UNKNOWN_PROGRAM,
    ) -> None:
        """Keep *client_id* in these groups for *expiry_ns* after this heartbeat."""
        self._quiet_until_ns = min(self._quiet_until_ns, now_ns + expiry_ns)
        for group in groups:
            clients = self._groups.setdefault(group, {})
            if (known := clients.get(client_id)) is not None:
                self._by_connection.remove(known.connection, (group, client_id))
            self._by_connection.add(connection, (group, client_id))
            self._clients += known is None
            clients[client_id] = Member(connection, now_ns + expiry_ns, program)

    def unregister(self, client_id: str, group: Group) -> None:
        """Remove a client from a group; unknown ones are ignored."""
        self._remove([(group, client_id)])

    def connection_closed(self, connection: C) -> None:
        """Remove the clients whose last heartbeat came over *connection*."""
        self._remove(self._by_connection.of(connection))

    def expire(self, now_ns: int) -> None:
        """Remove the clients whose last heartbeat is too old.

        O(clients) once the client that was to end first at the last such look may have ended,
        otherwise O(1).
        """
        if now_ns <= self._quiet_until_ns:
            return
        self._remove(
            [
                (group, client_id)
                for group, clients in self._groups.items()
                for client_id, member in clients.items()
                if now_ns > member.ends_ns
            ]
        )
        ends_ns = (each.ends_ns for clients in self._groups.values() for each in clients.values())
        self._quiet_until_ns = min(ends_ns, default=now_ns)

    def excuse(self, time_ns: int) -> None:
        """Extend all clients' time by *time_ns*, during which no heartbeat could be read."""
        for clients in self._groups.values():
            for member in clients.values():
                member.excuse(time_ns)

    def clients(self, group: Group) -> Mapping[str, Member[C]]:
        """Return the clients of *group* by id; empty for an unknown group."""
        return self._groups.get(group, {})

    def connections(self, group: Group) -> list[C]:
        """Return the connections of the clients of *group*."""
        return [member.connection for member in self.clients(group).values()]

    def _remove(self, gone: Iterable[Membership]) -> None:
        for group, client_id in gone:
            clients = self._groups.get(group, {})
            if (member := clients.pop(client_id, None)) is None:
                continue
            self._by_connection.remove(member.connection, (group, client_id))
            self._clients -= 1
            if not clients:
                del self._groups[group]
