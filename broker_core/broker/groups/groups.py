"""Consumer groups: their members, their subscriptions, and the members to notify of a change.

A member is a client; it stays one for 120 s after its last heartbeat (less if that heartbeat
requests it), or until it unregisters or the connection of that heartbeat closes. *connection*
identifies a client's connection for notices; it is only compared. The times are monotonic
nanoseconds. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from broker_core.names import Group, Topic
from broker_core.remoting.bodies import (
    CLUSTERING,
    FROM_FIRST,
    MEMBER_EXPIRY_MS,
    PASSIVELY,
    ConsumerData,
    Subscription,
)

EXPIRY_NS = MEMBER_EXPIRY_MS * 1_000_000

C = TypeVar("C", bound=Hashable)
#: Group and client id.
Membership = tuple[Group, str]


class Program(NamedTuple):
    """The program of a client: its language and RocketMQ's version number, as reported by it."""

    language: str = "OTHER"
    version: int = 0


UNKNOWN_PROGRAM = Program()


@dataclass(slots=True)
class Member(Generic[C]):
    """A member of a group: its connection for notices, and its expiry."""

    connection: C
    ends_ns: int
    program: Program = UNKNOWN_PROGRAM

    def excuse(self, time_ns: int) -> None:
        """Extend the membership by *time_ns*."""
        self.ends_ns += time_ns


class ByConnection(Generic[C]):
    """The memberships of each connection: its end costs as much as it has of them."""

    def __init__(self) -> None:
        self._memberships: dict[C, dict[Membership, None]] = {}

    def add(self, connection: C, membership: Membership) -> None:
        """Add a membership whose last heartbeat came over *connection*."""
        self._memberships.setdefault(connection, {})[membership] = None

    def remove(self, connection: C, membership: Membership) -> None:
        """Remove a membership that ended, or moved to another connection."""
        if (known := self._memberships.get(connection)) is not None:
            known.pop(membership, None)
            if not known:
                del self._memberships[connection]

    def of(self, connection: C) -> list[Membership]:
        """Return the memberships of *connection*."""
        return list(self._memberships.get(connection, ()))


@dataclass(slots=True)
class Consumers(Generic[C]):
    """A group as its members' heartbeats describe it; where they differ, the last one counts."""

    members: dict[str, Member[C]] = field(default_factory=dict)  # by client id
    subscriptions: dict[Topic, Subscription] = field(default_factory=dict)
    consume_type: str = PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = FROM_FIRST


class Groups(Generic[C]):
    """All groups with members. Methods return the groups whose members must be notified."""

    def __init__(self) -> None:
        self._groups: dict[Group, Consumers[C]] = {}
        self._memberships = 0
        self._by_connection: ByConnection[C] = ByConnection()
        self._quiet_until_ns = 0  # until then no member's time ends

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups)

    @property
    def memberships(self) -> int:
        """Number of members over all groups; a member of two groups counts twice."""
        return self._memberships

    def heartbeat(
        self,
        client_id: str,
        connection: C,
        consumers: Iterable[ConsumerData],
        *,
        now_ns: int,
        expiry_ns: int = EXPIRY_NS,
        program: Program = UNKNOWN_PROGRAM,
    ) -> set[Group]:
        """Keep *client_id* a member of these groups for *expiry_ns* after this heartbeat."""
        changed = set()
        self._quiet_until_ns = min(self._quiet_until_ns, now_ns + expiry_ns)
        for data in consumers:
            group = self._groups.setdefault(data.group, Consumers())
            member = group.members.get(client_id)
            if member is None or member.connection != connection:
                changed.add(data.group)
                if member is not None:
                    self._by_connection.remove(member.connection, (data.group, client_id))
                self._by_connection.add(connection, (data.group, client_id))
            self._memberships += member is None
            group.members[client_id] = Member(connection, now_ns + expiry_ns, program)
            group.consume_type = data.consume_type
            group.message_model = data.message_model
            group.consume_from_where = data.consume_from_where
            if _subscribe(group.subscriptions, data.subscriptions):
                changed.add(data.group)
        return changed

    def unregister(self, client_id: str, group: Group) -> set[Group]:
        """End a membership; unknown ones are ignored."""
        return self._remove([(group, client_id)])

    def connection_closed(self, connection: C) -> set[Group]:
        """End the memberships whose last heartbeat came over *connection*."""
        return self._remove(self._by_connection.of(connection))

    def expire(self, now_ns: int) -> set[Group]:
        """End the memberships whose last heartbeat is too old.

        O(memberships) once the one that was to end first at the last such look may have ended,
        otherwise O(1).
        """
        if now_ns <= self._quiet_until_ns:
            return set()
        members = [
            (group, client_id, member.ends_ns)
            for group, known in self._groups.items()
            for client_id, member in known.members.items()
        ]
        self._quiet_until_ns = min(
            (ends_ns for *_, ends_ns in members if now_ns <= ends_ns), default=now_ns
        )
        return self._remove([(name, one) for name, one, ends_ns in members if now_ns > ends_ns])

    def excuse(self, time_ns: int) -> None:
        """Extend all memberships by *time_ns*, during which no heartbeat could be read."""
        for group in self._groups.values():
            for member in group.members.values():
                member.excuse(time_ns)

    def find(self, group: Group) -> Consumers[C] | None:
        """Return the group, or None if it has no member."""
        return self._groups.get(group)

    def subscribers(self, topic: Topic) -> list[Group]:
        """Return the groups whose members subscribe to *topic*."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def count(self, group: Group) -> int:
        """Return the number of members of *group*."""
        known = self._groups.get(group)
        return len(known.members) if known else 0

    def has_member(self, group: Group, client_id: str) -> bool:
        """Return whether *client_id* is a member of *group*."""
        known = self._groups.get(group)
        return known is not None and client_id in known.members

    def subscriptions(self, group: Group) -> tuple[Subscription, ...]:
        """Return the subscriptions of *group*, according to its members' heartbeats."""
        known = self._groups.get(group)
        return tuple(known.subscriptions.values()) if known else ()

    def members(self, group: Group) -> list[str]:
        """Return client ids, sorted; empty for an unknown group."""
        known = self._groups.get(group)
        return sorted(known.members) if known else []

    def connections(self, group: Group) -> list[C]:
        """Return the connections of the members of *group*."""
        known = self._groups.get(group)
        return [member.connection for member in known.members.values()] if known else []

    def subscription(self, group: Group, topic: Topic) -> Subscription | None:
        """Return the group's subscription to *topic*, according to its members' heartbeats."""
        known = self._groups.get(group)
        return known.subscriptions.get(topic) if known else None

    def _remove(self, gone: Iterable[Membership]) -> set[Group]:
        changed = set()
        for name, client_id in gone:
            group = self._groups.get(name)
            member = None if group is None else group.members.pop(client_id, None)
            if group is None or member is None:
                continue
            self._by_connection.remove(member.connection, (name, client_id))
            self._memberships -= 1
            changed.add(name)
            if not group.members:
                del self._groups[name]
        return changed


def _subscribe(known: dict[Topic, Subscription], wanted: Iterable[Subscription]) -> bool:
    """Update *known*; return whether the set of topics changed."""
    before = set(known)
    named = set()
    for subscription in wanted:
        named.add(subscription.topic)
        old = known.get(subscription.topic)
        if old is None or subscription.version > old.version:
            known[subscription.topic] = subscription
    for topic in before - named:
        del known[topic]
    return set(known) != before
