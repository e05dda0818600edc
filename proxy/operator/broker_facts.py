"""Facts about a group for ``proxy.diagnosis``, from brokers and ownership records.

A broker that does not answer is a fact, not an error. For queues without an owner, the records list
what is unfinished, parked and paused.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from broker_core.client import BrokerClient, QueueRange
from broker_core.errors import BrokerError, NotRegistered, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.route_bodies import Perm, TopicRoute
from broker_core.tasks import all_results
from proxy.core.keys.order_key import key_text
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.paused_key import EVERYTHING
from proxy.core.records.record import Snapshot, ownership_topic
from proxy.diagnosis.facts import KeyFacts, Paused, QueueFacts
from proxy.upstream.dead_letters.copier import dead_letter_topic
from proxy.upstream.dead_letters.redrive_run import progress_group
from proxy.upstream.ownership.owner_book import OwnerBook, OwnerRow
from proxy.upstream.records.ownership_log import OwnershipLog

#: Concurrent queries of the queues of one broker.
_AT_ONCE = 16


@dataclass(slots=True)
class BrokerFacts:
    """Facts about a group from the brokers, topic by topic.

    ``from_latest``: the group begins at the end of queues where it has no committed offset.
    ``skipped``: topics and queues that are not asked about, because the caller owns them;
    ``fresh``: ask a nameserver for routes now instead of using those of the last 30 s.
    """

    client: BrokerClient
    group: Group
    from_latest: bool = False
    skipped: frozenset[tuple[str, str]] = frozenset()
    fresh: bool = True
    topics: set[str] = field(default_factory=set)
    queues: list[QueueFacts] = field(default_factory=list)
    away: dict[str, str] = field(default_factory=dict)
    """Brokers that do not answer, with the reasons."""
    refusing: dict[str, str] = field(default_factory=dict)
    """Brokers that answered with an error."""
    missing: set[str] = field(default_factory=set)
    not_readable: dict[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    dead_letters_known: bool = True
    """Whether all of them are counted."""
    addresses: set[str] = field(default_factory=set)
    """HTTP addresses of proxies that own queues."""
    trouble: str = ""
    """What the nameserver does instead of answering."""
    not_registered: str = ""
    """Which brokers are not registered there."""
    _checked: set[str] = field(default_factory=set)

    async def look(self, topics: Iterable[str]) -> None:
        """Query the queues of *topics*; if empty, of all topics with ownership records."""
        try:
            wanted = set(topics) or await self._on_record()
        except RemotingError as error:
            self._note(error)
            return
        self.topics |= wanted
        by_broker: defaultdict[str, list[QueueName]] = defaultdict(list)
        for topic in sorted(wanted):
            for queue in await self._queues_of(topic):
                if (queue.topic, queue.qid) not in self.skipped:
                    by_broker[queue.broker].append(queue)
        await self.check(by_broker)
        found = await all_results(*(self._at(*each) for each in sorted(by_broker.items())))
        self.queues += (facts for there in found for facts in there)

    async def _at(self, broker: str, queues: list[QueueName]) -> list[QueueFacts]:
        rows = await self._owners(broker, queues)
        ranges, turns = await self._ranges(broker, queues), asyncio.Semaphore(_AT_ONCE)
        return await all_results(
            *(self._facts(queue, rows.get(queue), ranges.get(queue), turns) for queue in queues)
        )

    async def look_at_dead_letters(self) -> None:
        """Count the dead letters that are not redriven, at the brokers that answer."""
        by_broker: defaultdict[str, list[QueueName]] = defaultdict(list)
        try:
            for queue in await self.client.queues(dead_letter_topic(self.group)):
                by_broker[queue.broker].append(queue)
        except RemotingError as error:
            missing = isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST
            self.dead_letters_known = missing
            return
        await all_results(
            *(
                self._count_dead_letters(broker, queues)
                for broker, queues in by_broker.items()
                if broker not in self.away
            )
        )
        self.dead_letters_known = self.dead_letters_known and not by_broker.keys() & self.away

    async def _count_dead_letters(self, broker: str, queues: list[QueueName]) -> None:
        try:
            ranges = await self.client.queue_ranges(queues, group=progress_group(self.group))
        except RemotingError as error:
            self._failed(broker, error)
            self.dead_letters_known = False
            return
        self.dead_letters += sum(
            max(0, each.end - max(each.begin, each.committed or 0)) for each in ranges.values()
        )

    async def check(self, brokers: Iterable[str]) -> None:
        """Check which of *brokers* answer."""
        new = sorted(set(brokers) - self._checked)
        self._checked |= set(new)
        await asyncio.gather(*map(self._check, new))

    async def _check(self, broker: str) -> None:
        try:
            await self.client.broker_start_ms(broker)
        except RemotingError as error:
            self._failed(broker, error)

    def _failed(self, broker: str, error: RemotingError) -> None:
        """Note that a question to *broker* failed."""
        if isinstance(error, BrokerError):
            self.refusing[broker] = str(error)
        else:
            self.away[broker] = str(error)

    async def _on_record(self) -> set[str]:
        """Return the topics with ownership records of the group."""
        topics = set(await self.client.topics())
        return {
            topic
            for topic in topics
            if not topic.startswith("%") and ownership_topic(self.group, Topic(topic)) in topics
        }

    async def _queues_of(self, topic: str) -> list[QueueName]:
        try:
            queues = await self.client.queues(Topic(topic), fresh=self.fresh)
            if hidden := _written_only(await self.client.topic_route(Topic(topic))):
                self.not_readable[topic] = hidden
            return queues
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                self._note(error)
            else:
                self.missing.add(topic)
        except RemotingError as error:
            self._note(error)
        return []

    def _note(self, error: RemotingError) -> None:
        """Note an error of the nameserver, or of a request for a route."""
        if isinstance(error, NotRegistered):
            self.not_registered = str(error)
        elif isinstance(error, BrokerError):
            self.trouble = f"refuses requests: {error}"
        else:
            self.trouble = f"does not answer: {error}"

    async def _existing(self, topic: Topic) -> list[QueueName]:
        """Return the queues of *topic*; none if it does not exist, or no nameserver answers."""
        try:
            return await self.client.queues(topic)
        except RemotingError:
            return []

    async def _owners(self, broker: str, queues: list[QueueName]) -> dict[QueueName, OwnerRow]:
        if broker in self.away:
            return {}
        book = OwnerBook(self.client, OwnershipLog(self.client))
        try:
            rows = await book.rows(self.group, queues)
        except RemotingError as error:
            self._failed(broker, error)
            return {}
        self.addresses |= {
            row.last.own.http
            for row in rows
            if row.last is not None and row.state == "owned" and row.last.own.http
        }
        return {row.queue: row for row in rows}

    async def _ranges(self, broker: str, queues: list[QueueName]) -> Mapping[QueueName, QueueRange]:
        if broker in self.away:
            return {}
        try:
            return await self.client.queue_ranges(queues, group=self.group)
        except RemotingError as error:
            self._failed(broker, error)
            return {}

    async def _facts(
        self,
        queue: QueueName,
        row: OwnerRow | None,
        found: QueueRange | None,
        turns: asyncio.Semaphore,
    ) -> QueueFacts:
        facts = QueueFacts(queue.topic, queue.qid)
        if row is not None:
            owner = None if row.last is None or row.state == "free" else row.last.own.owner
            facts = replace(facts, state=row.state, owner=owner)
        if queue.broker in self.away or found is None:
            return facts
        committed = found.committed
        facts = replace(facts, end=found.end, committed=committed, first=found.begin)
        async with turns:
            try:
                if row is None or row.state == "owned":
                    return facts
                last = None if row.last is None else row.last.snapshot
                if last is None:
                    is_new = committed is None and row.last is None
                    return replace(facts, unfinished=0) if is_new and self.from_latest else facts
                return await self._of_record(facts, queue, last, committed)
            except RemotingError as error:
                self._failed(queue.broker, error)
                return facts

    async def _of_record(
        self, facts: QueueFacts, queue: QueueName, last: Snapshot, committed: int | None
    ) -> QueueFacts:
        """Add what the last record of a queue without an owner contains. Raises RemotingError."""
        first, end = facts.first or 0, facts.end or 0
        begin = max(first, last.begins_at(committed or 0))
        left = sum(begin <= offset < end for offset in _unfinished(last))
        unfinished = left + max(0, end - max(begin, last.read))
        copies, by_key = await self._copies(queue)
        parked = tuple(
            KeyFacts(
                key_text(key) or "",
                queue.topic,
                queue.qid,
                "parked",
                copies=by_key.get(key, 0),
                by=who.by,
                reason=who.reason,
            )
            for key, who in sorted(last.parked.items())
        )
        pause = last.paused.get(EVERYTHING)
        paused = None if pause is None else Paused(pause.since_ms, pause.by, pause.reason)
        return replace(facts, unfinished=unfinished, parked=parked, paused=paused, copies=copies)

    async def _copies(self, queue: QueueName) -> tuple[int, dict[bytes, int]]:
        """Return the parked messages of *queue*, and by key those that its records list."""
        topic = parked_topic(self.group, Topic(queue.topic))
        twin = QueueName(topic, queue.broker, queue.queue_id)
        if twin not in await self._existing(topic):
            return 0, {}
        range_ = (await self.client.queue_ranges([twin], group=self.group))[twin]
        first, end, committed = range_.begin, range_.end, range_.committed or 0
        last = None
        records = QueueName(ownership_topic(self.group, topic), queue.broker, queue.queue_id)
        if records in await self._existing(records.topic):
            log = OwnershipLog(self.client)
            last = (await log.last(self.group, twin, by_period=True))[0]
        if last is None or last.snapshot is None:
            return max(0, end - max(first, committed)), {}
        said = last.snapshot
        begin = max(first, said.begins_at(committed))
        left = sum(begin <= offset < end for offset in _unfinished(said))
        by_key = {
            key: sum(begin <= offset < end for offset in offsets)
            for key, offsets in said.spilled.items()
        }
        return left + max(0, end - max(begin, said.read)), by_key


def _unfinished(said: Snapshot) -> Iterable[int]:
    yield from said.unfinished
    for offsets in said.spilled.values():
        yield from offsets


def _written_only(route: TopicRoute) -> int:
    """Return the number of queues that producers may write to and no consumer may read."""
    count = 0
    for each in route.queues:
        readable = each.read_queues if each.perm & Perm.READ else 0
        writable = each.write_queues if each.perm & Perm.WRITE else 0
        count += max(0, writable - readable)
    return count
