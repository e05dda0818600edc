"""Results of requests to brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from broker_core.names import QueueName
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import StoredMessage


class PullStatus(IntEnum):
    """Outcome of a pull; the number is the response code."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED
    DAMAGED = ResponseCode.MESSAGE_DAMAGED


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """Messages in queue order, filtered by the broker by hash of the tag only.

    ``next_offset`` is the offset of the next pull, after messages that were filtered out; with
    OFFSET_ILLEGAL it is the nearest legal one, with DAMAGED the one behind the damaged messages,
    and ``damage`` is a sentence about these. ``max_offset`` is the next offset that the broker will
    write. ``life`` is the incarnation of the topic, None if the broker does not report it.
    """

    status: PullStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    life: int | None = None
    damage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledRecords:
    """A ``PullResult`` with the concatenated messages as the broker stored them."""

    status: PullStatus
    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    life: int | None = None
    damage: str = ""


class TopicLife(NamedTuple):
    """The life of a topic at a broker, for one of its queues.

    ``number`` is None if the broker reports none. ``former`` maps the lives that it continues,
    after the restore of an older log, to the offset below which both have the same messages.
    """

    number: int | None
    former: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAnswer:
    """Result of a request for orderly locks. A queue in neither set was refused."""

    granted: frozenset[QueueName] = frozenset()
    unanswered: frozenset[QueueName] = frozenset()  # the broker failed: outcome unknown


class SendStatus(Enum):
    """Durability of a stored message."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT  # in memory, perhaps not on disk
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE  # on the master only
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT  # perhaps on the master only


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReceipt:
    """Receipt of a stored message. ``message_id`` is its UNIQ_KEY, the same over retries.

    ``recall_handle`` is the handle to recall a delayed message with, if the broker supports it.
    """

    queue: QueueName
    offset: int
    message_id: str
    offset_message_id: str
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None


class EncodedReceipt(NamedTuple):
    """Receipt of an encoded batch: its queue, and the offset of its first message."""

    queue: QueueName
    offset: int
    status: SendStatus = SendStatus.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedReplicas:
    """Replicas that elect their master: ids, and the epoch of the master."""

    master: int
    epoch: int
    in_sync: tuple[int, ...]
    voters: tuple[int, ...]

    @property
    def behind(self) -> tuple[int, ...]:
        """Ids of replicas that are not connected, or lack confirmed messages."""
        return tuple(each for each in self.voters if each not in self.in_sync)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """The range of a broker's log, of all topics: bytes from ``begin`` up to ``end``.

    ``retention``: figures of its retention under the names of the runtime table, empty if the
    broker does not report them. ``replicas``: those that elect the broker's master, if they do.
    """

    begin: int
    end: int
    retention: Mapping[str, int] = field(default_factory=dict)
    replicas: ElectedReplicas | None = None
