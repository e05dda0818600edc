"""Consumer groups: who is a member, what the group wants, and who must hear of a change.

A member is a client; it stays one for 120 s after its last heartbeat (less if that heartbeat says
so), or until it unregisters or the connection of that heartbeat closes. *connection* is whatever
the shell sends notices on; it is only compared. The times are monotonic nanoseconds. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

C = TypeVar("C")


class Program(NamedTuple):
    """What runs a client: its language and RocketMQ's number of its version, as it says."""

    language: str = "OTHER"
    version: int = 0


UNKNOWN_PROGRAM = Program()


@dataclass(slots=True)
class Member(Generic[C]):
    """A client of a group: where it can be told something, until when it counts."""

    connection: C
    ends_ns: int
    program: Program = UNKNOWN_PROGRAM

    def excuse(self, time_ns: int) -> None:
        """Let it count *time_ns* longer."""
        self.ends_ns += time_ns


@dataclass(slots=True)
class Consumers(Generic[C]):
    """A group as its members' heartbeats describe it; of what they say differently, the last."""

    members: dict[str, Member[C]] = field(default_factory=dict)  # by client id
    subscriptions: dict[Topic, Subscription] = field(default_factory=dict)
    consume_type: str = PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = FROM_FIRST


class Groups(Generic[C]):
    """All groups with members. What returns groups, returns those whose members must be told."""

    def __init__(self) -> None:
        self._groups: dict[Group, Consumers[C]] = {}

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
        """Keep *client_id* a member of these groups, for *expiry_ns* if nothing is heard of it."""
        changed = set()
        for data in consumers:
            group = self._groups.setdefault(data.group, Consumers())
            member = group.members.get(client_id)
            if member is None or member.connection != connection:
                changed.add(data.group)
            group.members[client_id] = Member(connection, now_ns + expiry_ns, program)
            group.consume_type = data.consume_type
            group.message_model = data.message_model
            group.consume_from_where = data.consume_from_where
            if _subscribe(group.subscriptions, data.subscriptions):
                changed.add(data.group)
        return changed

    def unregister(self, client_id: str, group: Group) -> set[Group]:
        """End a membership; unknown ones are no error."""
        return self._remove(lambda name, one, _: name == group and one == client_id)

    def connection_closed(self, connection: C) -> set[Group]:
        """End the memberships whose last heartbeat came over *connection*."""
        return self._remove(lambda _, __, member: member.connection == connection)

    def expire(self, now_ns: int) -> set[Group]:
        """End the memberships not heard of for too long."""
        return self._remove(lambda _, __, member: now_ns > member.ends_ns)

    def excuse(self, time_ns: int) -> None:
        """Give all members *time_ns* more: nobody could be heard meanwhile."""
        for group in self._groups.values():
            for member in group.members.values():
                member.excuse(time_ns)

    def find(self, group: Group) -> Consumers[C] | None:
        """The group, None if it has no member."""
        return self._groups.get(group)

    def subscribers(self, topic: Topic) -> list[Group]:
        """The groups whose members subscribe *topic*."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def members(self, group: Group) -> list[str]:
        """Client ids, sorted; empty for an unknown group."""
        known = self._groups.get(group)
        return sorted(known.members) if known else []

    def connections(self, group: Group) -> list[C]:
        """Where the members of *group* can be told something."""
        known = self._groups.get(group)
        return [member.connection for member in known.members.values()] if known else []

    def subscription(self, group: Group, topic: Topic) -> Subscription | None:
        """What the members' heartbeats say that the group wants of *topic*."""
        known = self._groups.get(group)
        return known.subscriptions.get(topic) if known else None

    def _remove(self, ends: Callable[[Group, str, Member[C]], bool]) -> set[Group]:
        changed = set()
        for name, group in list(self._groups.items()):
            gone = [one for one, member in group.members.items() if ends(name, one, member)]
            for client_id in gone:
                del group.members[client_id]
                changed.add(name)
            if not group.members:
                del self._groups[name]
        return changed


def _subscribe(known: dict[Topic, Subscription], wanted: Iterable[Subscription]) -> bool:
    """Bring *known* up to date; True if the set of topics changed."""
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
