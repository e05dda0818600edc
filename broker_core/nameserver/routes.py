"""Routes of topics, and the brokers that are alive. Pure: the time is an argument.

Invariants:

1. A broker is alive while its last registration is younger than its expiry and the connection
   that brought it is open.
2. The end of a connection drops only what that connection registered last: a broker that has
   returned on a new connection stays.
3. A broker's topics are those of its member with the lowest id: all that were registered over
   that connection and not deleted since. Brokers of 5.x register a new topic alone. Embedded
   brokers say when all their topics come, in parts: those that no part names are gone.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from broker_core.errors import InvalidCommand
from broker_core.names import Topic
from broker_core.remoting.nameserver_headers import MemberHeader
from broker_core.remoting.route_bodies import (
    MASTER_ID,
    BrokerData,
    ClusterTable,
    DataVersion,
    Perm,
    QueueData,
    TopicConfig,
    TopicRoute,
)

#: A broker that is silent for this time is dropped; brokers register every 30 s.
EXPIRY_NS = 120_000_000_000
#: Topics of one broker; characters of clients' values, names included, in all.
MAX_TOPICS = 200_000
MAX_VALUE_CHARS = 16 * 1024 * 1024
#: Members (masters and slaves), topics over all of them, and clients' values.
MAX_MEMBERS = 1_000
MAX_TOPICS_IN_ALL = 1_000_000
MAX_VALUES = 100_000
_NO_VERSION = DataVersion(-1, -1)
#: Values of this namespace are a topic's ``orderTopicConf``.
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The last registration of one member (master or slave) of a broker.

    ``part``: if all its topics come in parts, the number of this one, from 0, and how many there
    are. ``named``: the topics of these parts so far, set by ``Routes``.
    """

    header: MemberHeader
    topics: dict[Topic, TopicConfig]
    connection: Hashable
    expires_ns: int
    lifetime_ns: int = EXPIRY_NS
    version: DataVersion = field(default_factory=DataVersion)
    ha_address: str = ""
    part: tuple[int, int] | None = None
    named: set[Topic] | None = None

    @property
    def is_last_part(self) -> bool:
        """True if all topics have come with this part."""
        return self.part is not None and self.part[0] == self.part[1] - 1


class Routes:
    """The tables of a nameserver. Lookups scan all brokers, of which there are few."""

    __slots__ = (
        *("_members", "_read_only", "_topics_in_all"),
        *("_value_chars", "_value_count", "_values"),
    )

    def __init__(self) -> None:
        self._members: dict[tuple[str, int], Registration] = {}  # by broker name and id
        self._values: dict[str, dict[str, str]] = {}
        self._value_chars = self._value_count = 0
        self._topics_in_all = 0
        self._read_only: set[str] = set()  # brokers that producers must not send to

    def __repr__(self) -> str:
        return f"<Routes members={len(self._members)} topics={len(self.topics())}>"

    # -- brokers -------------------------------------------------------------------------------

    def register(self, registration: Registration) -> Registration | None:
        """Add a registration; return the one it replaces, or None if the member is new.

        The parts of a registration are added to the topics that the same connection registered
        before. Raises InvalidCommand above ``MAX_TOPICS``, ``MAX_MEMBERS`` or
        ``MAX_TOPICS_IN_ALL``, without effect.
        """
        header = registration.header
        key = (header.broker_name, header.broker_id)
        replaced = self._members.get(key)
        is_part = replaced is not None and replaced.connection == registration.connection
        known = replaced.topics if replaced is not None else {}
        before, count = len(known), len(registration.topics)
        if is_part:
            count = before + len(registration.topics.keys() - known.keys())
        problem = None
        if count > MAX_TOPICS:
            problem = f"{count} topics: at most {MAX_TOPICS} are allowed"
        elif replaced is None and len(self._members) >= MAX_MEMBERS:
            problem = f"one more member: {MAX_MEMBERS} are registered, the maximum"
        elif (in_all := self._topics_in_all + count - before) > MAX_TOPICS_IN_ALL:
            problem = f"topics up to {in_all} in all: at most {MAX_TOPICS_IN_ALL} are allowed"
        if problem is not None:
            raise InvalidCommand(f"broker {header.broker_name!r} registers {problem}")
        for other, held in list(self._members.items()):
            # The same process under a new id: a slave that became master.
            if other != key and held.header.broker_addr == header.broker_addr:
                self._topics_in_all -= len(held.topics)
                del self._members[other]
        if is_part:
            known.update(registration.topics)  # a copy per part would cost as much as all parts
        topics = known if is_part else registration.topics
        named = _named(registration, replaced if is_part else None)
        if named is not None and registration.is_last_part:
            for topic in [each for each in topics if each not in named]:
                del topics[topic]
            named = None
        self._topics_in_all += len(topics) - before
        self._members[key] = replace(registration, topics=topics, named=named)
        return replaced

    def refresh(
        self, header: MemberHeader, *, connection: Hashable, now_ns: int
    ) -> DataVersion | None:
        """Keep a member alive; return the version that it registered over *connection*.

        None if it is unknown, or registered over another connection: a part that comes over this
        one would not be added to the topics of that one.
        """
        held = self._held(header)
        if held is None:
            return None
        self._members[header.broker_name, header.broker_id] = replace(
            held, expires_ns=now_ns + held.lifetime_ns
        )
        return held.version if held.connection == connection else None

    def unregister(self, header: MemberHeader) -> Registration | None:
        """Remove a member that leaves; return its registration."""
        if self._held(header) is None:
            return None
        return self._drop([self._members[header.broker_name, header.broker_id]])[0]

    def delete_topic(self, topic: Topic) -> None:
        """Remove *topic* from all brokers, until one registers it again.

        They register all their topics soon, since the version differs: perhaps one has it again.
        """
        for key, held in self._members.items():
            if held.topics.pop(topic, None) is not None:
                self._topics_in_all -= 1
                self._members[key] = replace(held, version=_NO_VERSION)

    def connection_closed(self, connection: Hashable) -> list[Registration]:
        """Drop the members that registered last over *connection*; return them."""
        return self._drop([r for r in self._members.values() if r.connection == connection])

    def expire(self, now_ns: int) -> list[Registration]:
        """Drop the members that have been silent for too long; return them."""
        return self._drop([r for r in self._members.values() if r.expires_ns <= now_ns])

    def master(self, broker: str) -> Registration | None:
        """Return the master of a broker."""
        return self._members.get((broker, MASTER_ID))

    def _held(self, header: MemberHeader) -> Registration | None:
        held = self._members.get((header.broker_name, header.broker_id))
        same = held is not None and held.header.broker_addr == header.broker_addr
        return held if same else None

    def _drop(self, gone: list[Registration]) -> list[Registration]:
        for registration in gone:
            del self._members[registration.header.broker_name, registration.header.broker_id]
            self._topics_in_all -= len(registration.topics)
        self._read_only &= {broker for broker, _ in self._members}
        return gone

    def set_writable(self, broker: str, writable: bool) -> int:
        """Allow or forbid sends to *broker* until it leaves; return its number of topics.

        Routes contain the permission; an unknown broker has no topics.
        """
        leader = self._leaders().get(broker)
        if leader is None:
            return 0
        if writable:
            self._read_only.discard(broker)
        else:
            self._read_only.add(broker)
        return len(leader.topics)

    # -- requests of clients ---------------------------------------------------------------------

    def route(self, topic: Topic) -> TopicRoute | None:
        """Return the route of *topic*, brokers ordered by name, or None if no broker has it."""
        queues = []
        for broker, member in sorted(self._leaders().items()):
            if (config := member.topics.get(topic)) is not None:
                perm = config.perm & ~Perm.WRITE if broker in self._read_only else config.perm
                queues.append(
                    QueueData(
                        broker=broker,
                        read_queues=config.read_queues,
                        write_queues=config.write_queues,
                        perm=perm,
                        sys_flag=config.sys_flag,
                    )
                )
        if not queues:
            return None
        brokers = self.clusters().brokers
        return TopicRoute(
            queues=tuple(queues),
            brokers=tuple(brokers[item.broker] for item in queues),
            order_conf=self.value(ORDER_TOPICS, topic),
        )

    def topics(self) -> list[Topic]:
        """Return all topics, sorted."""
        return sorted({topic for member in self._leaders().values() for topic in member.topics})

    def topics_of_cluster(self, cluster: str) -> list[Topic]:
        """Return the topics of a cluster's brokers, sorted."""
        leaders = [each for each in self._leaders().values() if each.header.cluster_name == cluster]
        return sorted({topic for member in leaders for topic in member.topics})

    def clusters(self) -> ClusterTable:
        """Return all brokers with their addresses, and the clusters they belong to."""
        brokers: dict[str, BrokerData] = {}
        clusters: dict[str, tuple[str, ...]] = {}
        for broker, leader in sorted(self._leaders().items()):
            addresses = {
                broker_id: member.header.broker_addr
                for (name, broker_id), member in sorted(self._members.items())
                if name == broker
            }
            cluster = leader.header.cluster_name
            brokers[broker] = BrokerData(cluster=cluster, broker=broker, addresses=addresses)
            clusters[cluster] = (*clusters.get(cluster, ()), broker)
        return ClusterTable(brokers=brokers, clusters=clusters)

    def _leaders(self) -> dict[str, Registration]:
        """Return by broker the member with the lowest id."""
        leaders: dict[str, Registration] = {}
        for (broker, _), member in sorted(self._members.items(), key=lambda item: item[0]):
            leaders.setdefault(broker, member)
        return leaders

    # -- values --------------------------------------------------------------------------------

    def all_values(self) -> dict[str, dict[str, str]]:
        """Return all values, by namespace and name."""
        return {namespace: dict(values) for namespace, values in self._values.items()}

    def put_value(self, namespace: str, key: str, *, value: str) -> None:
        """Store a value in memory. Raise InvalidCommand above ``MAX_VALUE_CHARS``."""
        held = self._value_chars - self._weight(namespace, key, self.value(namespace, key))
        after = held + self._weight(namespace, key, value)
        is_new = self.value(namespace, key) is None
        if is_new and self._value_count >= MAX_VALUES:
            raise InvalidCommand(
                f"value {key[:80]!r} of namespace {namespace[:80]!r} is not stored: there are"
                f" {self._value_count} values, the maximum; delete unused ones"
            )
        if after > MAX_VALUE_CHARS:
            raise InvalidCommand(
                f"value {key[:80]!r} of namespace {namespace[:80]!r} has {len(value)} characters,"
                f" {held} are stored: at most {MAX_VALUE_CHARS} are allowed in all"
            )
        self._value_chars = after
        self._value_count += is_new
        self._values.setdefault(namespace, {})[key] = value

    def value(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._values.get(namespace, {}).get(key)

    def delete_value(self, namespace: str, key: str) -> None:
        """Delete a value, if it exists."""
        values = self._values.get(namespace, {})
        self._value_count -= key in values
        self._value_chars -= self._weight(namespace, key, values.pop(key, None))
        if not values:
            self._values.pop(namespace, None)

    @staticmethod
    def _weight(namespace: str, key: str, value: str | None) -> int:
        return 0 if value is None else len(namespace) + len(key) + len(value)

    def values(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace."""
        return dict(self._values.get(namespace, {}))


def _named(registration: Registration, before: Registration | None) -> set[Topic] | None:
    """Return the topics named by the parts up to *registration*, which follows *before*; None if it
    is no part, or one before it is missing.
    """
    if registration.part is None:
        return None
    number, count = registration.part
    if number == 0:
        return set(registration.topics)
    if before is None or before.named is None or before.part != (number - 1, count):
        return None
    before.named.update(registration.topics)
    return before.named
