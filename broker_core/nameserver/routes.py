"""Routes of topics, and the brokers that are alive. Pure: the time is an argument.

Invariants:

1. A broker is alive while its last registration is younger than its expiry and the connection
   that brought it is open.
2. The end of a connection drops only what that connection registered last: a broker that has
   returned on a new connection stays.
3. A broker's topics are those of its member with the lowest id: all that were registered over
   that connection and not deleted since. Brokers of 5.x register a new topic alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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
#: Values of this namespace are a topic's ``orderTopicConf``.
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The last registration of one member (master or slave) of a broker."""

    header: MemberHeader
    topics: Mapping[Topic, TopicConfig]
    connection: Hashable
    expires_ns: int
    lifetime_ns: int = EXPIRY_NS
    version: DataVersion = field(default_factory=DataVersion)
    ha_address: str = ""


class Routes:
    """The tables of a nameserver. Lookups scan all brokers, of which there are few."""

    __slots__ = ("_members", "_read_only", "_value_chars", "_values")

    def __init__(self) -> None:
        self._members: dict[tuple[str, int], Registration] = {}  # by broker name and id
        self._values: dict[str, dict[str, str]] = {}
        self._value_chars = 0
        self._read_only: set[str] = set()  # brokers that producers must not send to

    def __repr__(self) -> str:
        return f"<Routes members={len(self._members)} topics={len(self.topics())}>"

    # -- brokers -------------------------------------------------------------------------------

    def register(self, registration: Registration) -> Registration | None:
        """Add a registration; return the one it replaces, or None if the member is new.

        Raises InvalidCommand above ``MAX_TOPICS``.
        """
        header = registration.header
        key = (header.broker_name, header.broker_id)
        for other, held in list(self._members.items()):
            # The same process under a new id: a slave that became master.
            if other != key and held.header.broker_addr == header.broker_addr:
                del self._members[other]
        replaced = self._members.get(key)
        if replaced is not None and replaced.connection == registration.connection:
            topics = {**replaced.topics, **registration.topics}
            registration = replace(registration, topics=topics)
        if len(registration.topics) > MAX_TOPICS:
            raise InvalidCommand(
                f"broker {header.broker_name!r} registers {len(registration.topics)} topics: at"
                f" most {MAX_TOPICS} are allowed"
            )
        self._members[key] = registration
        return replaced

    def refresh(self, header: MemberHeader, *, now_ns: int) -> DataVersion | None:
        """Keep a member alive; return the version of its registration, or None if unknown."""
        held = self._held(header)
        if held is None:
            return None
        self._members[header.broker_name, header.broker_id] = replace(
            held, expires_ns=now_ns + held.lifetime_ns
        )
        return held.version

    def unregister(self, header: MemberHeader) -> Registration | None:
        """Remove a member that leaves; return its registration."""
        if self._held(header) is None:
            return None
        return self._drop([self._members[header.broker_name, header.broker_id]])[0]

    def delete_topic(self, topic: Topic) -> None:
        """Remove *topic* from all brokers, until one registers it again."""
        for key, held in self._members.items():
            if topic in held.topics:
                topics = {name: each for name, each in held.topics.items() if name != topic}
                self._members[key] = replace(held, topics=topics)

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
        if after > MAX_VALUE_CHARS:
            raise InvalidCommand(
                f"value {key[:80]!r} of namespace {namespace[:80]!r} has {len(value)} characters,"
                f" {held} are stored: at most {MAX_VALUE_CHARS} are allowed in all"
            )
        self._value_chars = after
        self._values.setdefault(namespace, {})[key] = value

    def value(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._values.get(namespace, {}).get(key)

    def delete_value(self, namespace: str, key: str) -> None:
        """Delete a value, if it exists."""
        values = self._values.get(namespace, {})
        self._value_chars -= self._weight(namespace, key, values.pop(key, None))
        if not values:
            self._values.pop(namespace, None)

    @staticmethod
    def _weight(namespace: str, key: str, value: str | None) -> int:
        return 0 if value is None else len(namespace) + len(key) + len(value)

    def values(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace."""
        return dict(self._values.get(namespace, {}))
