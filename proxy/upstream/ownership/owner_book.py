"""Owners of a group's queues, by their ownership records, which any proxy can read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from broker_core.client import BrokerClient
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from proxy.core.records.replay import LastOwner
from proxy.errors import OwnedElsewhere, UnknownName
from proxy.upstream.broker_questions import BrokerQuestions
from proxy.upstream.records.ownership_log import OwnershipLog

#: Concurrent requests; each is a read or two.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """A queue and its newest ownership period, None if it never had one.

    ``member``: its owner is still a member of the group; ``since_ms``: start of the period, by the
    broker's clock.
    """

    queue: QueueName
    last: LastOwner | None
    member: bool
    since_ms: int | None = None

    @property
    def state(self) -> str:
        """``owned``; ``gone``: its owner left without a record, and its lock expires; ``free``."""
        if self.last is None or self.last.clean:
            return "free"
        return "owned" if self.member else "gone"


class OwnerBook:
    """Reads the owners of all groups."""

    def __init__(self, client: BrokerClient, log: OwnershipLog) -> None:
        self._client = client
        self._log = log
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def queues(self, group: Group, topic: Topic) -> list[QueueName]:
        """Return the queues of *topic*. Raises UnknownName if it does not exist, RemotingError."""
        try:
            return await self._client.queues(topic)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise UnknownName(f"topic {topic!r} of group {group!r} does not exist yet") from None

    async def queues_of(self, group: Group, topics: Iterable[Topic]) -> list[QueueName]:
        """Return the queues of those of *topics* that exist. Raises UnknownName if none does,
        RemotingError.
        """
        found: list[QueueName] = []
        missing: UnknownName | None = None
        for topic in topics:
            try:
                found += await self.queues(group, topic)
            except UnknownName as error:
                missing = missing or error.with_traceback(None)
        if missing is not None and not found:
            raise missing
        return found

    async def elsewhere(self, group: Group, *, but: Iterable[Topic]) -> list[OwnerRow]:
        """Return the queues that other proxies own of the topics that have ownership records of
        *group*, without the topics *but*. Raises RemotingError.
        """
        known = set(but)
        topics = [topic for topic in await self._log.topics(group) if topic not in known]
        queues: list[QueueName] = []
        with suppress(UnknownName):  # they were deleted meanwhile
            queues = await self.queues_of(group, topics)
        return [
            row
            for row in await self.rows(group, queues)
            if row.state == "owned"
            and row.last is not None
            and row.last.own.owner != self._client.client_id
        ]

    async def queue(self, group: Group, topic: Topic, qid: str) -> QueueName:
        """Return the queue *qid* of *topic*. Raises UnknownName with the existing queues;
        RemotingError.
        """
        queues = await self.queues(group, topic)
        for queue in queues:
            if queue.qid == qid:
                return queue
        known = ", ".join(queue.qid for queue in sorted(queues))
        raise UnknownName(f"topic {topic!r} has no queue {qid!r:.200}; its queues: {known}")

    async def rows(self, group: Group, queues: Iterable[QueueName]) -> list[OwnerRow]:
        """Return the owner of each of *queues*. Raises RemotingError."""
        wanted = list(queues)
        topics = {queue.topic for queue in wanted}
        members = {topic: await self._client.consumer_ids(group, topic) for topic in sorted(topics)}
        ends = await self._log.ends(group, wanted)
        ranges = await self._client.queue_ranges(queue for queue in wanted if ends.get(queue))
        rows = await asyncio.gather(
            *(
                self._row(group, queue, members[queue.topic], end=ends[queue], life=found.life)
                for queue, found in ranges.items()
            )
        )
        owned = {row.queue: row for row in rows}
        return [owned.get(queue, OwnerRow(queue, None, member=False)) for queue in wanted]

    async def known_rows(
        self, ask: BrokerQuestions, group: Group, queues: Iterable[QueueName]
    ) -> list[OwnerRow]:
        """Return the owner of each of *queues* whose broker answers; *ask* has the others."""
        answers = await ask.ask_each(queues, partial(self.rows, group))
        return sorted((row for rows in answers for row in rows), key=attrgetter("queue"))

    async def refuse_elsewhere(self, group: Group, queue: QueueName) -> None:
        """Raise OwnedElsewhere if another proxy owns *queue*; RemotingError."""
        (row,) = await self.rows(group, [queue])
        ours = self._client.client_id
        if row.last is None or row.state != "owned" or row.last.own.owner == ours:
            return
        own = row.last.own
        place = f"HTTP {own.http}" if own.http else "address unknown"
        raise OwnedElsewhere(
            f"queue {queue.qid} of {queue.topic!r} is owned by {own.owner} ({place}): send the"
            " request there",
            addresses=(own.http,) if own.http else (),
        )

    async def _row(
        self, group: Group, queue: QueueName, members: Iterable[str], *, end: int, life: int | None
    ) -> OwnerRow:
        """Return the row of *queue*, whose ownership records end at offset *end*; *life*: that of
        its topic, None if the broker reports none.
        """
        async with self._slots:
            last, _ = await self._log.last(group, queue, end=end)
            if last is not None and life not in (None, last.life):
                now = await self._client.topic_life(queue)
                last = last.in_life(now.number, former=now.former)
            since_ms = None if last is None else await self._log.begun_ms(group, queue, last)
        return OwnerRow(queue, last, last is not None and last.own.owner in members, since_ms)
