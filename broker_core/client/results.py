"""What a broker's answers amount to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from broker_core.names import QueueName
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import StoredMessage


class PullStatus(IntEnum):
    """How a pull ended; the number is the response code."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """Messages in queue order, as the broker filtered them: by hash of the tag alone.

    ``next_offset`` is where to go on, also past what was filtered out; with OFFSET_ILLEGAL it is
    the nearest legal one. ``max_offset`` is the next offset that the broker will write. ``life``
    is the incarnation of the topic, None if the broker does not tell them apart.
    """

    status: PullStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    life: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledRecords:
    """As ``PullResult``, with the messages as the broker stored them, one behind the other."""

    status: PullStatus
    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    life: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAnswer:
    """What became of a request for orderly locks. A queue in neither set was refused."""

    granted: frozenset[QueueName] = frozenset()
    unanswered: frozenset[QueueName] = frozenset()  # the broker failed: nobody knows


class SendStatus(Enum):
    """How safely a message is stored."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT  # in memory, perhaps not on disk
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE  # on the master alone
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT  # perhaps on the master alone


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReceipt:
    """A message is stored. ``message_id`` is its UNIQ_KEY, the same over retries.

    ``recall_handle`` is what a delayed message is recalled by, where the broker has recalls.
    """

    queue: QueueName
    offset: int
    message_id: str
    offset_message_id: str
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """What a broker keeps: the bytes of its log from ``begin`` up to ``end``, of all topics."""

    begin: int
    end: int
