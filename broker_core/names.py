"""The words of the field: topic, group, queue. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

Topic = NewType("Topic", str)
Group = NewType("Group", str)

#: What the official broker accepts in a topic or group name, and the longest it takes.
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
MAX_NAME_CHARS = 127

#: Topics that nobody but brokers and gateways sends to: retries, dead letters, records of owners.
INTERNAL_PREFIX = "%"
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"

#: Where a broker keeps messages that are not due yet: by level, a queue each, and by time.
SCHEDULE_TOPIC = Topic("SCHEDULE_TOPIC_XXXX")
TIMER_TOPIC = Topic("rmq_sys_wheel_timer")
DELAY_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
#: The group whose committed offsets say how far a broker is with its transactions.
TRANSACTION_GROUP = Group("CID_RMQ_SYS_TRANS")
TIMER_QUEUE = 18  # behind those of the levels
_DELAY_QUEUES = 32


class DelayedPlace(NamedTuple):
    """Where a delayed message waits: ``queue`` 0 to 17 are those of the levels, 18 is the timer's.

    Its number stands in the message that takes its place (``Envelope.prepared_offset``).
    """

    queue: int
    offset: int

    @property
    def number(self) -> int:
        """One number for both, above 0."""
        return (self.offset + 1) * _DELAY_QUEUES + self.queue

    @property
    def topic(self) -> Topic:
        """The topic of the queue."""
        return TIMER_TOPIC if self.queue == TIMER_QUEUE else SCHEDULE_TOPIC

    @property
    def queue_id(self) -> int:
        """The id of the queue in its topic."""
        return 0 if self.queue == TIMER_QUEUE else self.queue

    @classmethod
    def of(cls, topic: Topic, queue_id: int, offset: int) -> DelayedPlace:
        """The place of a message in one of DELAY_TOPICS."""
        return cls(TIMER_QUEUE if topic == TIMER_TOPIC else queue_id, offset)

    @staticmethod
    def queue_of(number: int) -> int:
        """The queue in a ``number``; of two numbers of a queue the higher is the later offset."""
        return number % _DELAY_QUEUES

    @classmethod
    def from_number(cls, number: int) -> DelayedPlace:
        """Inverse of ``number``."""
        return cls(number % _DELAY_QUEUES, number // _DELAY_QUEUES - 1)


class QueueName(NamedTuple):
    """A queue: always the broker's. Sorts by topic, then broker name, then id, as RocketMQ does."""

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
    """Turn ``broker-a_3`` back into a queue; raises ValueError on anything else.

    Only a queue id in plain decimal counts, so that one queue has one text form.
    """
    broker, separator, queue_id = qid.rpartition("_")
    if not (separator and broker and re.fullmatch(r"0|[1-9][0-9]{0,9}", queue_id)):
        raise ValueError(f"{qid!r} is no queue: expected broker name, '_' and a number")
    return QueueName(topic, broker, int(queue_id))


def check_name(kind: str, name: str) -> str:
    """Return *name*; raises ValueError if no broker would take it as a topic or group name."""
    if not name or len(name) > MAX_NAME_CHARS or not _LEGAL.match(name):
        raise ValueError(
            f"{kind} {name[: MAX_NAME_CHARS + 1]!r} is not a legal name: 1 to {MAX_NAME_CHARS}"
            " characters of letters, digits, '_', '-', '%' and '|'"
        )
    return name
