"""Pulls: codes 11 and 361, held until a message arrives if the client requests it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.message_filter import Wanted, inline, wanted_by
from broker_core.broker.groups.offsets_processor import OffsetProcessor
from broker_core.broker.groups.read_lives import ReadLives
from broker_core.broker.pulling.long_polls import MAX_SUSPEND_MS, LongPolls
from broker_core.broker.pulling.queue_reads import QueueReads, Wish
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.traffic import Traffic
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.names import Group, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag, PullMessageHeader, PullMessageResponse
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.reader import MAX_READ_BYTES, ReadResult, ReadStatus, StoreReader


class PullProcessor:
    """Answers with slices of the log."""

    def __init__(
        self,
        reader: StoreReader,
        *,
        directory: TopicDirectory,
        groups: Groups[RemotingChannel],
        group_directory: GroupDirectory,
        offsets: OffsetProcessor,
        long_polls: LongPolls,
        traffic: Traffic,
        lives: ReadLives,
    ) -> None:
        self._reads = QueueReads(
            reader,
            directory=directory,
            group_directory=group_directory,
            traffic=traffic,
            lives=lives,
        )
        self._groups = groups
        self._offsets = offsets
        self._long_polls = long_polls

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
        wish = _wish(header)
        life = self._reads.check(wish.group, wish.topic, wish.queue_id)
        wanted = self._wanted(header)
        commits = header.sys_flag & PullFlag.COMMIT_OFFSET and header.commit_offset >= 0
        if commits:
            self._offsets.commit_with_pull(header, channel)
        self._reads.asked(channel, wish, life)
        result = self._read(wish, wanted)
        may_wait = header.sys_flag & PullFlag.SUSPEND and header.suspend_timeout_millis > 0
        may_wait = may_wait and header.life in (None, life)
        if may_wait and self._has_nothing(wish, result):
            return self._hold(request, header, wanted)
        return self._answer(request, wish, result)

    async def _hold(
        self, request: RemotingCommand, header: PullMessageHeader, wanted: Wanted
    ) -> Answer:
        """Read again when messages arrive, until one matches or the time is up.

        A tag wakes the pull by its hash; a filter is applied to each message since the last read.
        """
        ends_ns = now_ns() + min(header.suspend_timeout_millis, MAX_SUSPEND_MS) * 1_000_000
        wish = _wish(header)
        # Read before waiting: earlier messages could not wake this pull.
        result = self._read(wish, wanted)
        while (left_ns := ends_ns - now_ns()) > 0 and not result.messages:
            if result.status is ReadStatus.NO_MATCH and wanted.passes is not None:
                wish = wish._replace(offset=result.next_offset)
                await asyncio.sleep(0)  # the read took time, during which no other work ran
            elif self._has_nothing(wish, result):
                woken = await self._long_polls.wait(
                    wish.topic,
                    wish.queue_id,
                    tag_hashes=wanted.tag_hashes,
                    timeout_s=left_ns / 1e9,
                )
                self._reads.check_readable(wish.topic, wish.queue_id)  # or it is deleted
                if not woken:
                    return self._answer(request, wish, self._read(wish, wanted))
            else:
                break
            result = self._read(wish, wanted)
        return self._answer(request, wish, result)

    def _read(self, wish: Wish, wanted: Wanted) -> ReadResult:
        result = self._reads.read(wish, wanted)
        self._reads.gave(wish, result)
        return result

    def _has_nothing(self, wish: Wish, result: ReadResult) -> bool:
        return self._reads.outcome(wish, result)[0] == ResponseCode.PULL_NOT_FOUND

    def _answer(self, request: RemotingCommand, wish: Wish, result: ReadResult) -> Answer:
        code, remark = self._reads.outcome(wish, result)
        fields = PullMessageResponse(
            next_begin_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            life=self._reads.life(wish.topic),
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


def _wish(header: PullMessageHeader) -> Wish:
    return Wish(
        Group(header.consumer_group),
        Topic(header.topic),
        header.queue_id,
        header.queue_offset,
        header.max_msg_nums,
        header.max_msg_bytes or MAX_READ_BYTES,
    )
