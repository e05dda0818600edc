"""Requests for offsets: committed ones (codes 14, 15, 43), those of a queue (29, 30, 31), and both
of many queues (7114).
"""

from __future__ import annotations

from collections.abc import Awaitable

import orjson

from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.offsets import CommittedOffsets, clients_group
from broker_core.broker.groups.read_lives import ReadLives
from broker_core.broker.table_saver import Saver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import Group, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import (
    OffsetResponse,
    PullMessageHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from broker_core.remoting.query_headers import TimestampResponse
from broker_core.remoting.queue_ranges import (
    MAX_QUEUES,
    RangeEntry,
    ReadRangesHeader,
    ReadRangesResponse,
    ranges_to_bytes,
)
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.reader import StoreReader


class OffsetProcessor:
    """Answers at once; commits reach the disk with the next save, unless they request it."""

    def __init__(
        self,
        reader: StoreReader,
        *,
        directory: TopicDirectory,
        offsets: CommittedOffsets,
        saver: Saver,
        lives: ReadLives,
        groups: GroupDirectory,
    ) -> None:
        self._lives = lives
        self._groups = groups
        self._reader = reader
        self._directory = directory
        self._offsets = offsets
        self._saver = saver

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_MAX_OFFSET: self._max,
            RequestCode.GET_MIN_OFFSET: self._min,
            RequestCode.READ_RANGES: self._ranges,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def _query(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = QueryConsumerOffsetHeader.from_ext(request.ext)
        topic = Topic(header.topic)
        offset = self._offsets.committed(Group(header.consumer_group), topic, header.queue_id)
        may_be_zero = header.set_zero_if_not_found is not False
        if offset is None and may_be_zero and self._reader.min_offset(topic, header.queue_id) == 0:
            # As Apache's brokers do for a young queue: a consumer that starts at the latest message
            # would skip messages stored before it found the queue. They check whether the first
            # message is still in memory, this broker whether it still exists.
            offset = 0
        if offset is None:
            raise BrokerError(
                ResponseCode.QUERY_NOT_FOUND,
                f"group {header.consumer_group!r} has no offset in queue {header.queue_id} of"
                f" {header.topic!r}",
            )
        return _offset(request, offset)

    def _commit(
        self, request: RemotingCommand, channel: RemotingChannel
    ) -> Answer | Awaitable[Answer]:
        header = UpdateConsumerOffsetHeader.from_ext(request.ext)
        self.commit(header, channel)
        return self._saved(request) if header.at_once else request.response()

    def commit(self, header: UpdateConsumerOffsetHeader, channel: RemotingChannel) -> None:
        """Commit for the client at *channel*. Raise BrokerError or InvalidCommand if refused."""
        topic, group = Topic(header.topic), clients_group(header.consumer_group)
        if not self._directory.has_queue(topic, header.queue_id):
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"there is no queue {header.queue_id} of topic {topic!r} on this broker",
            )
        if header.commit_offset < 0:
            raise InvalidCommand(f"commitOffset is {header.commit_offset}: expected 0 or more")
        life = self._directory.life(topic)
        if header.life is None:
            is_former = self._lives.is_former(channel, topic, life)
        else:
            is_former = header.life != life
        if is_former:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"commit for a former life of {topic!r} refused: the topic was deleted since, or"
                f" an older copy of the log restored, and is now in life {life}",
            )
        if header.life is None and self._is_restored(topic, header.queue_id, header.commit_offset):
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"commit of offset {header.commit_offset} refused: it is beyond the end of its"
                f" queue {header.queue_id} of {topic!r}, since an older copy of the log was"
                " restored",
            )
        self._groups.config(group)
        if header.if_none and self._offsets.committed(group, topic, header.queue_id) is not None:
            return
        if header.not_lower:
            self._check_not_lower(group, topic, header.queue_id, header.commit_offset)
        newer = self._offsets.commit(
            *(group, topic, header.queue_id, header.commit_offset),
            epoch=header.epoch,
            epoch_life=header.epoch_life,
        )
        if newer is not None:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"commit of epoch {header.epoch} refused: queue {header.queue_id} of {topic!r}"
                f" is now owned in epoch {newer}",
            )

    def commit_with_pull(self, header: PullMessageHeader, channel: RemotingChannel) -> None:
        """Commit the offset that a pull carries. Raise BrokerError or InvalidCommand if refused.

        One of a former life of the topic, or from before a restore, is left out: its client learns
        of that by the answer to the pull.
        """
        topic, queue_id, offset = Topic(header.topic), header.queue_id, header.commit_offset
        group = clients_group(header.consumer_group)
        is_former = self._lives.is_former(channel, topic, self._directory.life(topic))
        if not is_former and not self._is_restored(topic, queue_id, offset):
            self._offsets.commit(group, topic, queue_id, offset)

    def _check_not_lower(self, group: Group, topic: Topic, queue_id: int, offset: int) -> None:
        """Refuse a late commit of a process whose work another one has continued."""
        committed = self._offsets.committed(group, topic, queue_id)
        if committed is None or offset >= committed:
            return
        if committed <= self._reader.end_offset(topic, queue_id):  # otherwise it has to be lowered
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"commit of offset {offset} refused: group {group!r} has a higher one, {committed},"
                f" in queue {queue_id} of {topic!r}",
            )

    def _is_restored(self, topic: Topic, queue_id: int, offset: int) -> bool:
        """Return whether a commit is from before a restore of the log: by a client that knows no
        lives.
        """
        end = self._reader.end_offset(topic, queue_id)
        return offset > end and bool(self._directory.former_lives(topic, queue_id))

    async def _saved(self, request: RemotingCommand) -> Answer:
        try:
            await self._saver.save()
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the offsets cannot be saved now: {error.strerror}"
            ) from error
        return request.response()

    def _all(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        return request.response(body=orjson.dumps(self._offsets.to_offset_table()))

    def _search(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = SearchOffsetHeader.from_ext(request.ext)
        topic, queue_id, at_ms = Topic(header.topic), header.queue_id, header.timestamp
        if (header.boundary_type or "").lower() != "upper":
            return _offset(request, self._reader.offset_at(topic, queue_id, at_ms))
        last = self._reader.offset_at(topic, queue_id, at_ms + 1) - 1
        # As Apache's brokers: 0 if all messages are later, even if message 0 is gone.
        return _offset(request, last if last >= self._reader.min_offset(topic, queue_id) else 0)

    def _earliest(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = QueueHeader.from_ext(request.ext)
        topic, queue_id = Topic(header.topic), header.queue_id
        oldest = self._reader.min_offset(topic, queue_id)
        found = self._reader.store_ms(topic, queue_id, oldest)
        fields = TimestampResponse(timestamp=-1 if found is None else found)
        return request.response(ext=fields.to_ext())

    def _max(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        topic, queue_id = _queue_of(request)
        fields = OffsetResponse(
            offset=self._reader.end_offset(topic, queue_id),
            life=self._directory.life(topic),
            former_lives=_former(self._directory.former_lives(topic, queue_id)),
            no_topic=True if self._directory.topics.find(topic) is None else None,
        )
        return request.response(ext=fields.to_ext())

    def _min(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        topic, queue_id = _queue_of(request)
        life = self._directory.life(topic)
        return _offset(request, self._reader.min_offset(topic, queue_id), life=life)

    def _ranges(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = ReadRangesHeader.from_ext(request.ext)
        if not 1 <= header.count <= MAX_QUEUES:
            raise InvalidCommand(f"count is {header.count}: expected 1 to {MAX_QUEUES}")
        topic, group = Topic(header.topic), header.consumer_group
        entries = (
            RangeEntry(
                self._reader.min_offset(topic, queue_id),
                self._reader.end_offset(topic, queue_id),
                None if group is None else self._offsets.committed(Group(group), topic, queue_id),
            )
            for queue_id in range(header.queue_id, header.queue_id + header.count)
        )
        fields = ReadRangesResponse(life=self._directory.life(topic))
        return request.response(ext=fields.to_ext(), body=ranges_to_bytes(entries))


def _queue_of(request: RemotingCommand) -> tuple[Topic, int]:
    header = QueueHeader.from_ext(request.ext)
    return Topic(header.topic), header.queue_id


def _former(lives: dict[int, int]) -> str | None:
    return ",".join(f"{life}:{end}" for life, end in lives.items()) or None


def _offset(request: RemotingCommand, offset: int, *, life: int | None = None) -> Answer:
    return request.response(ext=OffsetResponse(offset=offset, life=life).to_ext())
