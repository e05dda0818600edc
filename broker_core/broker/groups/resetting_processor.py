"""Requests to reset a group's offsets: 222, and 220 to its members."""

from __future__ import annotations

from contextlib import suppress

from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.offsets import CommittedOffsets, clients_group
from broker_core.broker.table_saver import Saver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.errors import BrokerError, ConnectionLost, InvalidCommand
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.query_headers import ResetOffsetHeader
from broker_core.remoting.queue_maps import object_to_json, queue_map_to_json
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.reader import StoreReader

_AT_THE_END = -1
_OUR_LANGUAGE = "PYTHON"  # of the gateway's own connections


class ResetProcessor:
    """Asks members to move their offsets, as RocketMQ's do.

    For a group without members the broker moves them, on disk before the answer.
    """

    def __init__(
        self,
        reader: StoreReader,
        *,
        broker_name: str,
        topics: TopicDirectory,
        groups: Groups[RemotingChannel],
        offsets: CommittedOffsets,
        offset_saver: Saver,
    ) -> None:
        self._reader = reader
        self._broker_name = broker_name
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._offset_saver = offset_saver

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset}

    async def _reset(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = ResetOffsetHeader.from_ext(request.ext)
        topic, group = Topic(header.topic), clients_group(header.group)
        queue_ids = self._queue_ids(topic, header.queue_id)
        self._refuse_gateways(group, topic, queue_ids)
        wanted = {each: self._offset(group, topic, each, header) for each in queue_ids}
        body = object_to_json(
            {
                "offsetTable": queue_map_to_json(
                    (QueueName(topic, self._broker_name, queue_id), offset)
                    for queue_id, offset in wanted.items()
                )
            }
        )
        members = self._groups.connections(group)
        for member in members:
            with suppress(ConnectionLost):  # its end will be noticed
                member.send_oneway(
                    RemotingCommand(
                        RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext=header.to_ext(), body=body
                    )
                )
        if not members:
            await self._commit(group, topic, wanted)
        return request.response(body=body)

    def _queue_ids(self, topic: Topic, only: int) -> list[int]:
        config = self._topics.topics.find(topic)
        if config is None:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} does not exist on this broker"
            )
        if only < 0:
            return list(range(config.read_queues))
        self._topics.readable(topic, only)
        return [only]

    def _refuse_gateways(self, group: Group, topic: Topic, queue_ids: list[int]) -> None:
        """Raise BrokerError for a gateway's group: its records take precedence over a moved
        offset.
        """
        known = self._groups.find(group)
        members = known.members.values() if known else ()
        if any(member.program.language == _OUR_LANGUAGE for member in members) or any(
            self._offsets.epoch(group, topic, each) is not None for each in queue_ids
        ):
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"group {group} is served by the gateway, which keeps records of its own: reset it"
                " by 'orderlane offsets reset'",
            )

    def _offset(self, group: Group, topic: Topic, queue_id: int, header: ResetOffsetHeader) -> int:
        first = self._reader.min_offset(topic, queue_id)
        end = self._reader.end_offset(topic, queue_id)
        if header.offset is not None and header.queue_id >= 0:
            if not first <= header.offset <= end:
                raise InvalidCommand(
                    f"offset is {header.offset}: queue {queue_id} of {topic} has {first} to {end}"
                )
            return header.offset
        if header.timestamp == _AT_THE_END:
            found = end
        else:
            found = self._reader.offset_at(topic, queue_id, header.timestamp)
        committed = self._offsets.committed(group, topic, queue_id)
        return found if header.is_force or committed is None else min(found, committed)

    async def _commit(self, group: Group, topic: Topic, wanted: dict[int, int]) -> None:
        self._offsets.commit_all(
            group, {(topic, queue_id): offset for queue_id, offset in wanted.items()}
        )
        try:
            await self._offset_saver.save()
        except OSError as error:
            raise BrokerError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the offsets of group {group} cannot be saved now: {error.strerror}",
            ) from error
