"""Reads of a queue for a group: the checks, filters and counts shared by pulls and read
sessions.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.message_filter import Wanted
from broker_core.broker.groups.read_lives import ReadLives
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.traffic import Traffic
from broker_core.names import Group, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting_channel import RemotingChannel
from broker_core.store.reader import MAX_READ_BYTES, ReadResult, ReadStatus, StoreReader

MAX_MESSAGES = 4096

#: Code and remark of each read status. NO_MESSAGE is a wrong offset unless 0 was requested.
_OUTCOMES = {
    ReadStatus.FOUND: (ResponseCode.SUCCESS, "FOUND"),
    ReadStatus.NO_MATCH: (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
    ReadStatus.END: (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
    ReadStatus.NO_MESSAGE: (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE"),
    ReadStatus.TOO_SMALL: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
    ReadStatus.TOO_BIG: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
    ReadStatus.DAMAGED: (ResponseCode.MESSAGE_DAMAGED, "MESSAGE_DAMAGED"),
    ReadStatus.EXAMINED: (
        ResponseCode.SYSTEM_BUSY,
        "the index of the queue is being repaired from the log: pull again",
    ),
}


class Wish(NamedTuple):
    """Messages wanted by *group*, from *offset* on; *max_bytes*: unless the first is larger."""

    group: Group
    topic: Topic
    queue_id: int
    offset: int
    max_messages: int
    max_bytes: int = MAX_READ_BYTES


class QueueReads:
    """Reads at most about 1 MiB and 4,096 messages at a time."""

    def __init__(
        self,
        reader: StoreReader,
        *,
        directory: TopicDirectory,
        group_directory: GroupDirectory,
        traffic: Traffic,
        lives: ReadLives,
    ) -> None:
        self._reader = reader
        self._directory = directory
        self._group_directory = group_directory
        self._traffic = traffic
        self._lives = lives

    def check(self, group: Group, topic: Topic, queue_id: int) -> int | None:
        """Return the topic's life. Raise BrokerError if *group* may not consume, or the queue
        cannot be read.
        """
        self._group_directory.consuming(group)
        self.check_readable(topic, queue_id)
        return self._directory.life(topic)

    def check_readable(self, topic: Topic, queue_id: int) -> None:
        """Raise BrokerError if the queue cannot be read, or not any more."""
        self._directory.readable(topic, queue_id)

    def life(self, topic: Topic) -> int | None:
        """Return the life of *topic*."""
        return self._directory.life(topic)

    def asked(self, channel: RemotingChannel, wish: Wish, life: int | None) -> None:
        """Count a request of the client at *channel*, which now reads the topic in *life*."""
        self._lives.read(channel, wish.topic, life)
        self._traffic.pulled(wish.group, wish.topic, wish.queue_id, offset=wish.offset)

    def end_offset(self, topic: Topic, queue_id: int) -> int:
        """Return the offset of the queue's next message to become visible."""
        return self._reader.end_offset(topic, queue_id)

    def read(self, wish: Wish, wanted: Wanted) -> ReadResult:
        """Read what passes the filter *wanted*, without checks. Raise OSError if the disk fails."""
        return self._reader.read(
            wish.topic,
            wish.queue_id,
            wish.offset,
            max_messages=min(wish.max_messages, MAX_MESSAGES),
            max_bytes=min(wish.max_bytes, MAX_READ_BYTES),
            tag_hashes=wanted.tag_hashes,
            passes=wanted.passes,
            examined=wanted.examined,
        )

    def gave(self, wish: Wish, result: ReadResult) -> None:
        """Count the messages of *result*, which the client gets."""
        if result.messages:
            self._traffic.gave(
                wish.group, wish.topic, result.messages, stored_bytes=len(result.body)
            )

    def outcome(self, wish: Wish, result: ReadResult) -> tuple[ResponseCode, str]:
        """Return code and remark of the answer."""
        if result.status is ReadStatus.DAMAGED:
            code, remark = _OUTCOMES[result.status]
            return code, str(
                self._reader.damaged.find(wish.topic, wish.queue_id, wish.offset) or remark
            )
        if result.status is ReadStatus.NO_MESSAGE and wish.offset != 0:
            return ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE"
        return _OUTCOMES[result.status]
