"""The topics of one broker. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from broker_core.errors import InvalidCommand
from broker_core.names import SCHEDULE_TOPIC, TIMER_TOPIC, Topic, check_name
from broker_core.remoting.json_fields import JsonObject
from broker_core.remoting.route_bodies import DataVersion, Perm, TopicConfig
from broker_core.store.deletions import DELETIONS
from broker_core.store.epochs import EPOCHS

#: The topic whose route a producer requests when its own is unknown; new ones copy it.
TEMPLATE_TOPIC = Topic("TBW102")
#: As RocketMQ's brokers, which store delayed messages in one queue per level.
MAX_DELAY_LEVELS = 18
HALF_TOPIC = Topic("RMQ_SYS_TRANS_HALF_TOPIC")
HALF_OP_TOPIC = Topic("RMQ_SYS_TRANS_OP_HALF_TOPIC")
UNDECIDED_TOPIC = Topic("TRANS_CHECK_MAX_TIME_TOPIC")
#: The broker's own topics and their queues. They exist from its start; clients cannot send to them.
SYSTEM_TOPICS = {
    SCHEDULE_TOPIC: MAX_DELAY_LEVELS,
    TIMER_TOPIC: 1,
    HALF_TOPIC: 1,
    HALF_OP_TOPIC: 1,
    UNDECIDED_TOPIC: 1,
}
#: Names that clients cannot create or send to: RocketMQ's brokers use them for other purposes.
RESERVED_TOPICS = frozenset(
    {TEMPLATE_TOPIC, *SYSTEM_TOPICS, DELETIONS, EPOCHS, "OFFSET_MOVED_EVENT"}
)
_NOT_IN_TABLE = frozenset({TEMPLATE_TOPIC, *SYSTEM_TOPICS})
MAX_QUEUES = 16384
#: Former lives that a topic keeps: one per restore of an older copy of the log.
_MOST_FORMER = 8


def named_topic(name: str) -> Topic:
    """Return *name* as a topic; raise InvalidCommand if it is invalid."""
    try:
        return Topic(check_name("topic", name))
    except ValueError as error:
        raise InvalidCommand(str(error)) from error


class Topics:
    """Topic configurations by name, with a version that increases with each change."""

    def __init__(self) -> None:
        self._configs: dict[Topic, TopicConfig] = {}
        self.version = DataVersion()
        #: Number of topic deletions in the log that were applied.
        self.deletions = 0
        self._lives: dict[Topic, int] = {}
        #: Lives that the current one continues, oldest first: life, and end offsets by queue.
        self._former: dict[Topic, tuple[tuple[int, Mapping[int, int]], ...]] = {}
        self._last_life = 0

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._configs.values())

    def __len__(self) -> int:
        """Number of topics without the broker's own."""
        return len(self._configs) - len(_NOT_IN_TABLE & self._configs.keys())

    def know_deletions(self, number: int) -> None:
        """Record that *number* deletions of the log were applied."""
        self.deletions = number

    def find(self, topic: Topic) -> TopicConfig | None:
        """Return the configuration, or None if the topic does not exist here."""
        return self._configs.get(topic)

    def life(self, topic: Topic) -> int | None:
        """Return the life of *topic*, or None if it does not exist.

        A topic that is created again has a higher number; 0 means created before lives were
        numbered.
        """
        return self._lives.get(topic, 0) if topic in self._configs else None

    def former_lives(self, topic: Topic, queue_id: int) -> dict[int, int]:
        """Return the lives that the current one continues, with the end of what they share: below
        that offset of the queue, both have the same messages.

        Empty unless an older copy of the log was restored.
        """
        return {life: ends.get(queue_id, 0) for life, ends in self._former.get(topic, ())}

    def continue_lives(self, end_offset: Callable[[Topic, int], int], *, now_ms: int) -> None:
        """Begin another life of all topics, which continues the current one at the queues' ends.

        For a restored copy of a log: the original may have got further, and the next messages get
        offsets that others already had there.
        """
        # From the clock: each restore of the same copy begins other lives.
        self._last_life = max(now_ms, self._last_life + 1)
        for config in self:
            topic = config.topic
            if topic in _NOT_IN_TABLE:
                continue
            queues = range(max(config.read_queues, config.write_queues))
            ends = {number: end for number in queues if (end := end_offset(topic, number))}
            former = (*self._former.get(topic, ()), (self._lives.get(topic, 0), ends))
            self._former[topic] = former[-_MOST_FORMER:]
            self._lives[topic] = self._last_life
        self.version = DataVersion(now_ms, self.version.counter + 1)

    def put(self, config: TopicConfig, *, now_ms: int) -> bool:
        """Create or change a topic; return False if nothing changes."""
        if self._configs.get(config.topic) == config:
            return False
        if config.topic not in self._configs:
            # From the clock, so that a broker that lost its data reuses no life.
            self._last_life = max(now_ms, self._last_life + 1)
            self._lives[config.topic] = self._last_life
        self._configs[config.topic] = config
        self.version = DataVersion(now_ms, self.version.counter + 1)
        return True

    def remove(self, topic: Topic, *, now_ms: int) -> TopicConfig | None:
        """Delete a topic; return its configuration, or None if it did not exist."""
        config = self._configs.pop(topic, None)
        self._lives.pop(topic, None)
        self._former.pop(topic, None)
        if config is not None:
            self.version = DataVersion(now_ms, self.version.counter + 1)
        return config

    def plan(self, configs: Sequence[TopicConfig], *, now_ms: int) -> dict[str, Any]:
        """Return the merge patch of the table that ``put`` of each of *configs* will need."""
        trial = Topics()
        for name in (config.topic for config in configs):
            if (known := self._configs.get(name)) is not None:
                trial._configs[name] = known
            if (life := self._lives.get(name)) is not None:
                trial._lives[name] = life
            if (former := self._former.get(name)) is not None:
                trial._former[name] = former
        trial.version, trial.deletions = self.version, self.deletions
        trial._last_life = self._last_life
        for config in configs:
            trial.put(config, now_ms=now_ms)
        return trial.patch(config.topic for config in configs)

    def patch(self, topics: Iterable[Topic]) -> dict[str, Any]:
        """Return a merge patch that brings a saved table up to date for *topics*."""
        names = list(topics)
        found = {name: self._configs.get(name) for name in names}
        return {
            "topicConfigTable": {
                name: None if config is None else config.to_fields()
                for name, config in found.items()
            },
            "lives": {name: self._lives.get(name) for name in names},
            "formerLives": {name: _former_to_json(self._former.get(name)) for name in names},
            **self._numbers(),
        }

    def offer_template(self, queues: int) -> None:
        """Add the template topic, by which producers find a route for new topics; not saved."""
        self._configs[TEMPLATE_TOPIC] = TopicConfig(
            topic=TEMPLATE_TOPIC,
            read_queues=queues,
            write_queues=queues,
            perm=Perm.READ_WRITE | Perm.INHERIT,
        )

    def offer_system_topics(self) -> None:
        """Add the broker's own topics, which can be read; not saved."""
        for topic, queues in SYSTEM_TOPICS.items():
            self._configs[topic] = TopicConfig(
                topic=topic, read_queues=queues, write_queues=queues, perm=Perm.READ
            )

    def replace(self, other: Topics) -> None:
        """Replace the content by *other*, except for the broker's own topics: a slave does so."""
        own = {name: config for name, config in self._configs.items() if name in _NOT_IN_TABLE}
        self._configs = {**other._configs, **own}
        self.version, self.deletions = other.version, other.deletions
        self._lives, self._last_life = other._lives, other._last_life
        self._former = other._former

    def to_table(self) -> dict[str, Any]:
        """Return RocketMQ's form of the file."""
        return {
            "topicConfigTable": {
                config.topic: config.to_fields()
                for config in self
                if config.topic not in _NOT_IN_TABLE
            },
            "lives": self._lives,
            "formerLives": {name: _former_to_json(each) for name, each in self._former.items()},
            **self._numbers(),
        }

    def _numbers(self) -> dict[str, Any]:
        return {
            "dataVersion": {"timestamp": self.version.timestamp, "counter": self.version.counter},
            "deletions": self.deletions,
            "lastLife": self._last_life,
        }

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> Topics:
        """Inverse of ``to_table``; raise InvalidCommand that names the invalid part."""
        topics = cls()
        fields = JsonObject(table, "topics table")
        version = JsonObject(fields.items("dataVersion"), "topics table's dataVersion")
        for name, value in fields.items("topicConfigTable").items():
            config = TopicConfig.from_fields(JsonObject(value, f"topic {name}"), topic=name)
            topics._configs[config.topic] = config
        topics.version = DataVersion(version.integer("timestamp", 0), version.integer("counter", 0))
        topics.deletions = fields.integer("deletions", 0)
        lives = JsonObject(fields.items("lives"), "lives of topics")
        topics._lives = {Topic(name): lives.integer(name, 0) for name in fields.items("lives")}
        topics._former = {
            Topic(name): _former_from_json(value, name)
            for name, value in fields.items("formerLives").items()
        }
        topics._last_life = fields.integer("lastLife", 0)
        return topics


def _former_to_json(
    former: tuple[tuple[int, Mapping[int, int]], ...] | None,
) -> list[dict[str, Any]] | None:
    if not former:
        return None
    return [
        {"life": life, "ends": {str(number): end for number, end in ends.items()}}
        for life, ends in former
    ]


def _former_from_json(value: Any, name: str) -> tuple[tuple[int, Mapping[int, int]], ...]:
    former = []
    for each in value if isinstance(value, list) else ():
        fields = JsonObject(each, f"former lives of topic {name}")
        ends = JsonObject(fields.items("ends"), f"ends of former lives of topic {name}")
        former.append(
            (
                fields.integer("life", 0),
                {int(number): ends.integer(number, 0) for number in fields.items("ends")},
            )
        )
    return tuple(former)
