"""Pulls: codes 11 and 361, held until a message arrives if the client requests it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.message_filter import Wanted, inline, wanted_by
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.groups.read_lives import ReadLives
from broker_core.broker.pulling.long_polls import LongPolls
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.traffic import Traffic
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import Group, Topic, check_name
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag, PullMessageHeader, PullMessageResponse
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.reader import MAX_READ_BYTES, ReadResult, ReadStatus, StoreReader

MAX_MESSAGES = 4096
_MAX_SUSPEND_MS = 600_000  # a pull held for a vanished client uses memory

#: Code and remark of each read status. NO_MESSAGE is a wrong offset unless 0 was requested.
_ANSWERS = {
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


class PullProcessor:
    """Answers with slices of the log, at most about 1 MiB and 4,096 messages."""

    def __init__(
        self,
        reader: StoreReader,
        *,
        directory: TopicDirectory,
        groups: Groups[RemotingChannel],
        group_directory: GroupDirectory,
        offsets: CommittedOffsets,
        long_polls: LongPolls,
        traffic: Traffic,
        lives: ReadLives,
    ) -> None:
        self._lives = lives
        self._reader = reader
        self._directory = directory
        self._groups = groups
        self._group_directory = group_directory
        self._offsets = offsets
        self._long_polls = long_polls
        self._traffic = traffic

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
        }

    def _pull(
        self, request: RemotingCommand, channel: RemotingChannel
    ) -> Answer | Awaitable[Answer]:
        header = PullMessageHeader.from_ext(request.ext)
        if header.max_msg_nums < 1:
            raise InvalidCommand(f"maxMsgNums is {header.max_msg_nums}: expected at least 1")
        self._group_directory.consuming(Group(header.consumer_group))
        self._directory.readable(Topic(header.topic), header.queue_id)
        wanted = self._wanted(header)
        life = self._directory.life(Topic(header.topic))
        commits = header.sys_flag & PullFlag.COMMIT_OFFSET and header.commit_offset >= 0
        if commits and not self._lives.is_former(channel, Topic(header.topic), life):
            self._commit(header)
        self._lives.read(channel, Topic(header.topic), life)
        self._traffic.pulled(
            Group(header.consumer_group),
            Topic(header.topic),
            header.queue_id,
            offset=header.queue_offset,
        )
        result = self._read(header, wanted)
        may_wait = header.sys_flag & PullFlag.SUSPEND and header.suspend_timeout_millis > 0
        may_wait = may_wait and header.life in (None, life)
        if may_wait and _code(result, header)[0] == ResponseCode.PULL_NOT_FOUND:
            return self._hold(request, header, wanted)
        return self._answer(request, header, result)

    async def _hold(
        self, request: RemotingCommand, header: PullMessageHeader, wanted: Wanted
    ) -> Answer:
        """Read again when messages arrive, until one matches or the time is up.

        A tag wakes the pull by its hash; a filter is applied to each message since the last read.
        """
        ends_ns = now_ns() + min(header.suspend_timeout_millis, _MAX_SUSPEND_MS) * 1_000_000
        # Read before waiting: earlier messages could not wake this pull.
        result = self._read(header, wanted)
        while (left_ns := ends_ns - now_ns()) > 0 and not result.messages:
            if result.status is ReadStatus.NO_MATCH and wanted.passes is not None:
                header = replace(header, queue_offset=result.next_offset)
                await asyncio.sleep(0)  # the read took time, during which no other work ran
            elif _code(result, header)[0] == ResponseCode.PULL_NOT_FOUND:
                woken = await self._long_polls.wait(
                    Topic(header.topic),
                    header.queue_id,
                    tag_hashes=wanted.tag_hashes,
                    timeout_s=left_ns / 1e9,
                )
                self._directory.readable(Topic(header.topic), header.queue_id)  # or it is deleted
                if not woken:
                    return self._answer(request, header, self._read(header, wanted))
            else:
                break
            result = self._read(header, wanted)
        return self._answer(request, header, result)

    def _commit(self, header: PullMessageHeader) -> None:
        try:
            group = Group(check_name("group", header.consumer_group))
        except ValueError as error:
            raise InvalidCommand(str(error)) from error
        topic = Topic(header.topic)
        self._offsets.commit(group, topic, header.queue_id, header.commit_offset)

    def _read(self, header: PullMessageHeader, wanted: Wanted) -> ReadResult:
        topic = Topic(header.topic)
        result = self._reader.read(
            topic,
            header.queue_id,
            header.queue_offset,
            max_messages=min(header.max_msg_nums, MAX_MESSAGES),
            max_bytes=min(header.max_msg_bytes or MAX_READ_BYTES, MAX_READ_BYTES),
            tag_hashes=wanted.tag_hashes,
            passes=wanted.passes,
        )
        if result.messages:
            self._traffic.gave(Group(header.consumer_group), topic, result.messages)
        return result

    def _answer(
        self, request: RemotingCommand, header: PullMessageHeader, result: ReadResult
    ) -> Answer:
        code, remark = _code(result, header)
        if result.status is ReadStatus.DAMAGED:
            where = (Topic(header.topic), header.queue_id, header.queue_offset)
            remark = str(self._reader.damaged.find(*where) or remark)
        fields = PullMessageResponse(
            next_begin_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            life=self._directory.life(Topic(header.topic)),
        )
        return request.response(code, remark, ext=fields.to_ext(), body=result.body)

    def _wanted(self, header: PullMessageHeader) -> Wanted:
        topic = Topic(header.topic)
        if header.sys_flag & PullFlag.SUBSCRIPTION:
            return wanted_by(inline(topic, header.subscription or "", header.expression_type))
        known = self._groups.subscription(Group(header.consumer_group), topic)
        if known is None:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"group {header.consumer_group!r} sent no heartbeat that subscribes {topic!r}",
            )
        if known.version < header.sub_version:
            raise BrokerError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the newest subscription known has version {known.version}, the pull"
                f" {header.sub_version}",
            )
        return wanted_by(known)


def _code(result: ReadResult, header: PullMessageHeader) -> tuple[ResponseCode, str]:
    if result.status is ReadStatus.NO_MESSAGE and header.queue_offset != 0:
        return ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE"
    return _ANSWERS[result.status]
