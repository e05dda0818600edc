"""Names of topics, groups and queues: their form, and the topics with a special meaning. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

Topic = NewType("Topic", str)
Group = NewType("Group", str)

#: Characters and length that the official broker accepts in the name of a topic or group.
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
MAX_NAME_CHARS = 127

#: Topics that only brokers and gateways send to: retries, dead letters, ownership records.
INTERNAL_PREFIX = "%"
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"

#: Beginnings of the names of brokers' own topics.
_OF_BROKERS = (
    "SCHEDULE_TOPIC_",
    "RMQ_SYS_",
    "rmq_sys_",
    "TBW102",
    "SELF_TEST_TOPIC",
    "OFFSET_",
    "TRANS_CHECK_",
)

#: Topics of messages that are not due yet: one queue per delay level, and by delivery time.
SCHEDULE_TOPIC = Topic("SCHEDULE_TOPIC_XXXX")
TIMER_TOPIC = Topic("rmq_sys_wheel_timer")
DELAY_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
#: The group whose committed offsets are a broker's progress with its transactions.
TRANSACTION_GROUP = Group("CID_RMQ_SYS_TRANS")
TIMER_QUEUE = 18  # follows those of the levels
_DELAY_QUEUES = 32


class DelayedPlace(NamedTuple):
    """Position of a waiting delayed message. Queues 0 to 17 belong to the levels, 18 to the timer.

    Its number is stored in the message that is delivered for it (``Envelope.prepared_offset``).
    """

    queue: int
    offset: int

    @property
    def number(self) -> int:
        """Queue and offset as one number above 0."""
        return (self.offset + 1) * _DELAY_QUEUES + self.queue

    @property
    def topic(self) -> Topic:
        """Topic of the queue."""
        return TIMER_TOPIC if self.queue == TIMER_QUEUE else SCHEDULE_TOPIC

    @property
    def queue_id(self) -> int:
        """Id of the queue in its topic."""
        return 0 if self.queue == TIMER_QUEUE else self.queue

    @classmethod
    def of(cls, topic: Topic, queue_id: int, offset: int) -> DelayedPlace:
        """Return the position of a message in one of DELAY_TOPICS."""
        return cls(TIMER_QUEUE if topic == TIMER_TOPIC else queue_id, offset)

    @staticmethod
    def queue_of(number: int) -> int:
        """Return the queue of a ``number``; within a queue a higher number is a later offset."""
        return number % _DELAY_QUEUES

    @classmethod
    def from_number(cls, number: int) -> DelayedPlace:
        """Return the position with this ``number``."""
        return cls(number % _DELAY_QUEUES, number // _DELAY_QUEUES - 1)


class QueueName(NamedTuple):
    """A queue of a broker. Sorts by topic, broker name and id, as in RocketMQ."""

    topic: Topic
    broker: str
    queue_id: int

    @property
    def qid(self) -> str:
        """Text form without the topic: ``broker-a_3``."""
        return f"{self.broker}_{self.queue_id}"

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}_{self.queue_id}"


def parse_qid(topic: Topic, qid: str) -> QueueName:
    """Parse ``broker-a_3`` into a queue; raise ValueError on anything else.

    The queue id must be plain decimal, so that a queue has only one text form.
    """
    broker, separator, queue_id = qid.rpartition("_")
    if not (separator and broker and re.fullmatch(r"0|[1-9][0-9]{0,9}", queue_id)):
        raise ValueError(f"{qid!r} is not a queue: expected broker name, '_' and a number")
    return QueueName(topic, broker, int(queue_id))


def is_internal_topic(topic: str) -> bool:
    """Return whether *topic* belongs to brokers or gateways."""
    return topic.startswith((INTERNAL_PREFIX, *_OF_BROKERS))


def check_name(kind: str, name: str) -> str:
    """Return *name*; raise ValueError if brokers reject it as the name of a topic or group."""
    if not name or len(name) > MAX_NAME_CHARS or not _LEGAL.match(name):
        raise ValueError(
            f"{kind} {name[: MAX_NAME_CHARS + 1]!r} is not a legal name: 1 to {MAX_NAME_CHARS}"
            " characters of letters, digits, '_', '-', '%' and '|'"
        )
    return name
