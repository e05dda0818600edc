"""The method ``fetch``: decoded messages or stored records from the positions of a bulk reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from broker_core.client import BrokerClient, PullResult
from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.message import FIXED_BYTES, StoredMessage, queue_offset_of
from broker_core.remoting.record_stripping import without_bodies
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.bulk.answer import BulkAnswer, Read
from proxy.core.keys.retry_policy import MS
from proxy.core.leases.lease_book import BESIDE_BYTES
from proxy.downstream.bulk.positions import BulkPositions, Position, reader_of
from proxy.downstream.bulk.scheduler import BulkScheduler, ReadPermit
from proxy.downstream.port.connection import Reply
from proxy.downstream.port.frames import Spliced
from proxy.downstream.port.interpretation import interpretation_of
from proxy.downstream.port.load import Load
from proxy.downstream.port.requests import MAX_LINGER_MS, MIN_LINGER_MS, user_properties
from proxy.errors import Refused
from proxy.settings.proxy_settings import LimitSettings
from thrift_idl import consumer, consumer_service

#: Queues read concurrently for one answer with records.
_READS_AT_ONCE = 4
#: Time limit for collecting one answer with records; with slow brokers it is small rather than
#: late.
COLLECT_NS = 1_000_000_000

#: Average size of records from which on leaving out their bodies costs less than sending them.
_WORTH_STRIPPING_BYTES = 512

_MESSAGES, _RECORDS = 0, 1


class BulkFetch:
    """Serves ``fetch`` for the positions that *positions* finds."""

    def __init__(
        self,
        client: BrokerClient,
        positions: BulkPositions,
        scheduler: BulkScheduler,
        limits: LimitSettings,
        load: Load,
    ) -> None:
        self._client = client
        self._positions = positions
        self._scheduler = scheduler
        self._limits = limits
        self._load = load

    async def fetch(self, arguments: Any, reply: Reply) -> Any:
        """Answer as soon as there are messages, or after the linger."""
        request = arguments.request
        if request is None:
            raise Refused("fetch came without its request")
        if request.format not in (None, _MESSAGES, _RECORDS):
            raise Refused(
                f"fetch names format {request.format}: 0 (messages) and 1 (stored records) are"
                " served"
            )
        linger_ms = min(max(request.maxLingerTime or 0, MIN_LINGER_MS), MAX_LINGER_MS)
        until_ns = now_ns() + linger_ms * MS
        asked = await self._positions.asked(request, interpretation_of(reply, arguments))
        give = self._records if request.format == _RECORDS else self._messages
        answer, news = await give(request, asked, until_ns)
        if not news:  # an empty answer at once would make DDMQ's Java client spin
            await asyncio.sleep(max(0, until_ns - now_ns()) / 1e9)
        return answer

    @asynccontextmanager
    async def _permit(
        self, group: Group, asked: Iterable[Position], until_ns: int
    ) -> AsyncIterator[ReadPermit]:
        """Wait for permission to read, unless there is nothing to read.

        The bytes that may be read count as held meanwhile. Without room for them, or when
        time is up, the permit allows no bytes.
        """
        if all(each.queue is None for each in asked):
            yield ReadPermit(0)
            return
        wanted_bytes = self._limits.max_answer_bytes
        async with self._scheduler.permit(group, wanted_bytes, until_ns=until_ns) as permit:
            if self._load.is_over:
                permit.refuse()
            self._load.change(permit.max_bytes)
            try:
                yield permit
            finally:
                self._load.change(-permit.max_bytes)

    def _note_lives(self, request: Any, lives: Mapping[QueueName, int | None]) -> None:
        """Remember the *lives* in which a reader that names no offsets reads. Others may read and
        report through different proxies, and know the lives themselves.
        """
        if lives and not request.fetchOffset:
            self._positions.readers_of(Group(request.groupId)).read(reader_of(request), lives)

    # ---- stored records -------------------------------------------------------------------------

    async def _records(
        self, request: Any, asked: list[Position], until_ns: int
    ) -> tuple[Spliced, bool]:
        """Return the answer, and whether it contains news."""
        queues = [each.queue for each in asked if each.queue is not None]
        wanted = request.maxBatchSize or 0
        group = Group(request.groupId)
        async with self._permit(group, asked, until_ns) as permit:
            answer = BulkAnswer(
                [each.offset for each in asked if each.queue is not None],
                max_bytes=permit.max_bytes,
                max_messages=wanted if wanted > 0 else None,
            )
            strip = bool(request.withoutBodies)
            await self._collect(answer, queues, group, strip=strip)
            permit.read(answer.read_bytes)
        waits = permit.max_bytes and not answer.has_news
        if waits and (wait_ms := (until_ns - now_ns()) // MS) > 0:
            await self._await_records(answer, queues, group, wait_ms=wait_ms, strip=strip)
            self._scheduler.read_later(group, answer.read_bytes)
        parts = zip(queues, answer.parts, strict=True)
        self._note_lives(request, {queue: part.life for queue, part in parts})
        return _spliced(asked, answer), answer.has_news

    async def _collect(
        self, answer: BulkAnswer, queues: list[QueueName], group: Group, *, strip: bool
    ) -> None:
        """Add the records that are available now to *answer*."""
        until_ns = now_ns() + COLLECT_NS

        async def read_on() -> None:
            while now_ns() < until_ns and (read := answer.next_read()) is not None:
                await self._read_records(answer, read, queues[read.place], group, strip=strip)

        if len(queues) == 1:
            await read_on()
            return
        readers = [
            spawn(read_on(), name=f"fetch {index}")
            for index in range(min(len(queues), _READS_AT_ONCE))
        ]
        try:
            await asyncio.gather(*readers)
        finally:
            await cancel_and_wait(*readers)

    async def _await_records(
        self,
        answer: BulkAnswer,
        queues: list[QueueName],
        group: Group,
        *,
        wait_ms: int,
        strip: bool,
    ) -> None:
        """Wait up to *wait_ms* until one of *queues* has records."""
        pending = {
            spawn(
                self._read_records(answer, read, queue, group, wait_ms=wait_ms, strip=strip),
                name=f"fetch {queue}",
            )
            for read, queue in zip(answer.reads_again(), queues, strict=True)
        }
        pulls = list(pending)
        try:
            while pending and not answer.has_news:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            await cancel_and_wait(*pulls)

    async def _read_records(
        self,
        answer: BulkAnswer,
        read: Read,
        queue: QueueName,
        group: Group,
        *,
        wait_ms: int = 0,
        strip: bool,
    ) -> None:
        try:
            pulled = await self._client.pull_records(
                queue,
                group=group,
                offset=read.offset,
                max_messages=read.max_messages,
                max_bytes=read.max_bytes,
                suspend_ms=wait_ms,
            )
        except RemotingError as error:
            self._positions.warn("fetch failed", error)
            answer.on_failure(read)
        else:
            records, next_offset = pulled.records, pulled.next_offset
            # Apache's brokers skip offsets that they are deleting; B1 requires that the reader
            # learns of it.
            if records and (first := queue_offset_of(records)) > read.offset:
                records, next_offset = b"", first
            elif pulled.life is None:  # the embedded broker skips none between records
                records, next_offset = _before_gap(records, read.offset, next_offset)
            read_bytes = len(records)
            if strip and read_bytes > _WORTH_STRIPPING_BYTES * (next_offset - read.offset):
                records = without_bodies(records)
            answer.on_read(
                read,
                records,
                read_bytes=read_bytes,
                next_offset=next_offset,
                end_offset=pulled.max_offset,
                life=pulled.life,
            )

    # ---- messages -------------------------------------------------------------------------------

    async def _messages(
        self, request: Any, asked: list[Position], until_ns: int
    ) -> tuple[Any, bool]:
        """Return the answer, and whether it contains news."""
        results: dict[QueueName, PullResult] = {}
        group = Group(request.groupId)
        async with self._permit(group, asked, until_ns) as permit:
            if permit.max_bytes:
                await self._read(request, asked, results, wait_ms=0)
            permit.read(_size_bytes(results))
        waits = permit.max_bytes and not _has_news(asked, results)
        if waits and (wait_ms := (until_ns - now_ns()) // MS) > 0:
            await self._read(request, asked, results, wait_ms=wait_ms)
            self._scheduler.read_later(group, _size_bytes(results))
        self._note_lives(request, {queue: each.life for queue, each in results.items()})
        answer = consumer.FetchResponse(results=self._answers(asked, results))
        return consumer_service.fetch_result(success=answer), _has_news(asked, results)

    async def _read(
        self,
        request: Any,
        asked: Iterable[Position],
        results: dict[QueueName, PullResult],
        *,
        wait_ms: int,
    ) -> None:
        """Read all queues concurrently into *results*, waiting up to *wait_ms* until one has
        messages. Queues that fail are left out.
        """
        pulls = {
            spawn(
                self._pull(each.queue, each, request, suspend_ms=wait_ms),
                name=f"fetch {each.queue}",
            ): each.queue
            for each in asked
            if each.queue is not None
        }
        try:
            pending = set(pulls)
            while pending and not (wait_ms and any(each.messages for each in results.values())):
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for pull in done:
                    if (result := pull.result()) is not None:
                        results[pulls[pull]] = result
        finally:
            await cancel_and_wait(*pulls)

    async def _pull(
        self, queue: QueueName, asked: Position, request: Any, *, suspend_ms: int
    ) -> PullResult | None:
        wanted = request.maxBatchSize or 0
        try:
            return await self._client.pull(
                queue,
                group=Group(request.groupId),
                offset=asked.offset,
                max_messages=min(wanted, asked.most) if wanted > 0 else asked.most,
                suspend_ms=suspend_ms,
            )
        except RemotingError as error:
            self._positions.warn("fetch failed", error)
            return None

    def _answers(
        self, asked: Iterable[Position], results: Mapping[QueueName, PullResult]
    ) -> list[Any]:
        """Return one QidResponse per position, always with the next offset: clients continue from
        it.
        """
        bytes_left = self._limits.max_answer_bytes
        answers = []
        for each in asked:
            result = None if each.queue is None else results.get(each.queue)
            messages: list[StoredMessage] = []
            next_offset = each.offset if result is None else result.next_offset
            for message in () if result is None else result.messages:
                if bytes_left <= 0:
                    next_offset = message.queue_offset
                    break
                messages.append(message)
                bytes_left -= BESIDE_BYTES + len(message.body) + len(message.raw_properties)
            answers.append(
                consumer.QidResponse(
                    topic=each.topic,
                    qid=each.qid,
                    nextRequestOffset=next_offset,
                    messages=[_message(message) for message in messages],
                    life=None if result is None else result.life,
                )
            )
        return answers


def _before_gap(records: bytes, offset: int, next_offset: int) -> tuple[bytes, int]:
    """Return the records from *offset* on that no offset is missing between, and the offset behind
    them; *next_offset* if none is missing.
    """
    at, last = 0, len(records) - FIXED_BYTES
    while at <= last:
        if (found := queue_offset_of(records, at)) > offset:
            return records[:at], offset
        offset = found + 1
        at += max(int.from_bytes(records[at : at + 4], "big"), FIXED_BYTES)
    return records, next_offset


def _spliced(asked: Iterable[Position], answer: BulkAnswer) -> Spliced:
    """Return one QidResponse per position, with its records."""
    parts = iter(answer.parts)
    responses = []
    blobs: list[list[bytes]] = []
    for each in asked:
        part = None if each.queue is None else next(parts)
        responses.append(
            consumer.QidResponse(
                topic=each.topic,
                qid=each.qid,
                nextRequestOffset=each.offset if part is None else part.next_offset,
                messages=[],
                records=b"",
                life=None if part is None else part.life,
            )
        )
        blobs.append([] if part is None else part.chunks)
    result = consumer_service.fetch_result(success=consumer.FetchResponse(results=responses))
    return Spliced(result, responses, blobs)


def _has_news(asked: Iterable[Position], results: Mapping[QueueName, PullResult]) -> bool:
    """Return whether there are messages, or a next offset that the reader does not know."""
    return any(
        result.messages or result.next_offset != each.offset
        for each in asked
        if each.queue is not None and (result := results.get(each.queue)) is not None
    )


def _size_bytes(results: Mapping[QueueName, PullResult]) -> int:
    return sum(message.size for result in results.values() for message in result.messages)


def _message(stored: StoredMessage) -> Any:
    return consumer.Message(
        key=stored.key,
        value=stored.body,
        tag=stored.tag,
        offset=stored.queue_offset,
        properties=user_properties(stored.properties),
        bornAtMs=stored.born_ms,
        messageId=stored.message_id,
    )
