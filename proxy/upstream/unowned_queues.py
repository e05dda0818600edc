"""Figures of queues that this proxy does not own, from brokers and ownership records.

Queues without an owner would otherwise be in no figure, as if nothing waited in them. One look
reads the offsets of these queues, by a few requests for each topic and broker, and the last records
of those whose records changed since the previous look, one after the other. It takes at most a
tenth of the time: with tens of thousands of queues a look takes minutes. The figures stay, with
their age, while a broker does not answer. A queue that this proxy released has the figures that it
had then until it is looked at, within a second or two.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from broker_core.client import BrokerClient, QueueRange
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.tasks import all_results
from proxy.core.group.known_queue import (
    KnownQueue,
    Offsets,
    QueueOwner,
    Recorded,
    Source,
    oldest_of,
    parked_copies,
)
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from proxy.core.records.replay import LastOwner
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.settings.groups import TopicSettings
from proxy.upstream.broker_questions import BrokerQuestions
from proxy.upstream.dead_letters.copier import dead_letter_topic
from proxy.upstream.dead_letters.redrive_run import progress_group
from proxy.upstream.records.ownership_log import OwnershipLog

#: Time to wait after each topic, as a multiple of the time that it took.
_PAUSE = 9
#: Interval of checks for groups to look at before their turn, in s.
_NEWS_S = 1.0
#: Time after which the queues of a broker that is in no route any more are forgotten.
_FORGET_MS = 3_600_000

#: Why the figures of a group are not newer if looking at it fails.
_BUG = "the look at the queues of this group failed: see the proxy's log"

_noisy = NoisyLog(structlog.get_logger("unowned"))


@dataclass(slots=True)
class _Records:
    """The last records of a queue, read when they ended at ``end``."""

    end: int = -1
    last: LastOwner | None = None


@dataclass(slots=True)
class _Seen:
    """A queue at the last look that reached it. ``stored``: offset and time of its oldest message
    that waits.
    """

    known: KnownQueue
    records: _Records = field(default_factory=_Records)
    twin: _Records = field(default_factory=_Records)
    stored: tuple[int, int | None] = (-1, None)


@dataclass(slots=True)
class _OfGroup:
    """One group. ``topics``: those that were looked at, ``missed``: those of them
    whose queues are not known.
    """

    topics: tuple[str, ...] = ()
    missed: set[str] = field(default_factory=set)
    queues: dict[QueueName, _Seen] = field(default_factory=dict)
    dead_letters: int | None = None
    dead_letters_at_ms: int | None = None


class UnownedQueues:
    """Looks regularly. Broadcast groups are left out: their clients have offsets of their own."""

    def __init__(self, client: BrokerClient, log: OwnershipLog, lanes: Iterable[GroupLane]) -> None:
        """*lanes* is iterated again each time."""
        self._client = client
        self._log = log
        self._lanes = lanes
        self._groups: dict[Group, _OfGroup] = {}
        self._news_due_ns = 0
        #: Errors of brokers that did not answer at the last look, by name.
        self.brokers_away: dict[str, str] = {}

    # ---- results --------------------------------------------------------------------------------

    def of(self, lane: GroupLane) -> list[KnownQueue]:
        """Return the known queues of *lane* that this proxy does not own."""
        seen = self._groups.get(lane.name, _OfGroup())
        owned = lane.owned_queues
        found = {
            queue: each.known
            for queue, each in seen.queues.items()
            if queue not in owned and queue.topic in lane.topics
        }
        return [*(found | {queue: lane.released[queue] for queue in lane.released}).values()]

    def missed(self, lane: GroupLane) -> frozenset[str]:
        """Return the topics of *lane* of which further queues may exist: no look found out."""
        if lane.is_broadcast:
            return frozenset()
        seen = self._groups.get(lane.name, _OfGroup())
        topics = map(Topic, _topics_of(lane))
        missed = {name for name in topics if name in seen.missed or name not in seen.topics}
        if not missed:
            return frozenset()
        owned = Counter(queue.topic for queue in lane.owned_queues)
        # Its own route tells a member that it owns all queues.
        return frozenset(name for name in missed if owned[name] < lane.rates.queues.get(name, 1))

    def dead_letters(self, group: Group) -> tuple[int | None, int | None]:
        """Return the dead letters that were not redriven, and when they were counted, in ms since
        1970; None: unknown.
        """
        seen = self._groups.get(group)
        return (None, None) if seen is None else (seen.dead_letters, seen.dead_letters_at_ms)

    def lag_without_clients(self) -> dict[tuple[Group, Topic], int]:
        """Return the lags of topics that no client at this proxy wants. A topic whose brokers do
        not answer is absent.
        """
        found: dict[tuple[Group, Topic], int] = {}
        for lane in self._lanes:
            if not (topics := _without_clients(lane)):
                continue
            missed, known = self.missed(lane), defaultdict[str, list[KnownQueue]](list)
            for each in self.of(lane):
                known[each.queue.topic].append(each)
            for topic in topics:
                queues = known[topic.name]
                lags = [each.lag for each in queues if not each.trouble and each.lag is not None]
                if topic.name not in missed and queues and len(lags) == len(queues):
                    found[lane.name, Topic(topic.name)] = sum(lags)
        return found

    # ---- looking --------------------------------------------------------------------------------

    async def run(self, *, every_s: float) -> None:
        """Look every *every_s*, and as long as a look takes, until cancelled."""
        due_ns = 0
        while True:
            await asyncio.sleep(_NEWS_S)
            with _noisy.confined("bug", "unowned queues not seen"):
                if now_ns() >= due_ns:
                    await self.look()
                    due_ns = now_ns() + int(every_s * 1e9)
                else:
                    await self._look_at_news()

    async def look(self) -> None:
        """Look once at all groups. Errors of brokers are logged."""
        away: dict[str, str] = {}
        for lane in list(self._lanes):
            await self._look_at(lane, away)
            self.brokers_away = self.brokers_away | away
            await self._look_at_news()
        brokers = {each.queue.broker for lane in self._lanes for each in lane.buffer}
        ask = BrokerQuestions()
        starts = (
            ask.ask(broker, partial(self._client.broker_start_ms, broker))
            for broker in sorted(brokers - away.keys())
        )
        await all_results(*starts)
        self.brokers_away = away | ask.unanswered
        for gone in self._groups.keys() - {lane.name for lane in self._lanes}:
            del self._groups[gone]

    async def _look_at_news(self) -> None:
        """Look at groups that are new or have other topics, and at those that released queues.

        Does nothing if it was done a moment ago: it is O(groups), and done after each group.
        """
        if now_ns() < self._news_due_ns:
            return
        self._news_due_ns = now_ns() + int(_NEWS_S / 2 * 1e9)
        for lane in list(self._lanes):
            seen = self._groups.get(lane.name)
            if seen is None or lane.released or seen.topics != _topics_of(lane):
                await self._look_at(lane, dict(self.brokers_away))

    async def _look_at(self, lane: GroupLane, away: dict[str, str]) -> None:
        bug = _noisy.confined(f"bug {lane.name}", "unowned queues not seen", group=lane.name)
        with bug:
            await self._look_at_all_of(lane, away)
        if bug.failed and (seen := self._groups.get(lane.name)) is not None:
            seen.queues = {queue: _troubled(each, _BUG) for queue, each in seen.queues.items()}

    async def _look_at_all_of(self, lane: GroupLane, away: dict[str, str]) -> None:
        if lane.is_broadcast:
            return
        before = self._groups.get(lane.name, _OfGroup())
        now = _OfGroup(_topics_of(lane))
        for topic in lane.settings.topics:
            began_ns, silent = now_ns(), len(away)
            look = _TopicLook(self._client, self._log, lane, topic, away)
            now.queues |= await look.run(before)
            if look.failed and (topic.name in before.missed or topic.name not in before.topics):
                now.missed.add(topic.name)
            if len(away) == silent:  # otherwise most of the time was a wait for a broker
                await asyncio.sleep(_PAUSE * (now_ns() - began_ns) / 1e9)
        count = await self._dead_letters(lane.name, away)
        if count is None:
            now.dead_letters, now.dead_letters_at_ms = (
                before.dead_letters,
                before.dead_letters_at_ms,
            )
        else:
            now.dead_letters, now.dead_letters_at_ms = count, wall_ms()
        self._groups[lane.name] = now

    async def _dead_letters(self, group: Group, away: dict[str, str]) -> int | None:
        """Return the number of dead letters, None if a broker of theirs is *away*; may add one."""
        ask = BrokerQuestions()
        try:
            queues = await _queues(self._client, dead_letter_topic(group))
        except RemotingError:
            return None
        if any(queue.broker in away for queue in queues):
            return None
        count = partial(_offsets, self._client, progress_group(group))
        answers = await ask.ask_each(queues, count)
        away |= ask.silent
        if ask.unanswered:
            return None
        return sum(each.lag() for offsets in answers for each in offsets.values())


class _TopicLook:
    """One look at the queues of one topic. Brokers in *away* are not asked; it adds others."""

    def __init__(
        self,
        client: BrokerClient,
        log: OwnershipLog,
        lane: GroupLane,
        topic: TopicSettings,
        away: dict[str, str],
    ) -> None:
        self._client = client
        self._log = log
        self._lane = lane
        self._topic = Topic(topic.name)
        self._away = away
        self.failed = False  # its queues could not be asked for
        self._members: list[str] = []
        self._ranges: dict[QueueName, QueueRange] = {}
        self._ends: dict[QueueName, int] = {}  # of their ownership records
        self._failures: dict[str, str] = {}  # by broker

    async def run(self, before: _OfGroup) -> dict[QueueName, _Seen]:
        """Return what is known of the queues that this proxy does not own."""
        earlier = {
            queue: seen for queue, seen in before.queues.items() if queue.topic == self._topic
        }
        lane = self._lane
        try:
            queues = await _queues(self._client, self._topic)
            recorded = await _queues(self._client, ownership_topic(lane.name, self._topic))
            if queues:
                self._members = await self._client.consumer_ids(lane.name, self._topic)
        except RemotingError as error:
            self.failed = True
            self._complain(error)
            if not isinstance(error, BrokerError):  # a refusal is about this group alone
                for queue in earlier:
                    self._away.setdefault(queue.broker, str(error))
            return {queue: _troubled(seen, str(error)) for queue, seen in earlier.items()}
        found = dict(self._not_routed(queues, earlier))
        asked_ms = wall_ms()
        await self._read_ranges(
            [queue for queue in queues if queue not in lane.owned_queues], frozenset(recorded)
        )
        for queue in queues:
            if queue not in lane.owned_queues and (
                queue in self._ranges or self._trouble_of(queue) is not None
            ):
                found[queue] = await self._look(queue, earlier.get(queue), asked_ms)
                released = lane.released.get(queue)
                if released is not None and not found[queue].known.trouble:
                    lane.looked_at(queue, before_ms=asked_ms)
        return found

    def _not_routed(
        self, queues: list[QueueName], earlier: dict[QueueName, _Seen]
    ) -> Iterator[tuple[QueueName, _Seen]]:
        """Yield the queues of brokers that are in no route any more: they may come back."""
        brokers = {queue.broker for queue in queues}
        for queue, seen in earlier.items():
            at_ms = seen.known.at_ms
            is_old = at_ms is None or wall_ms() - at_ms > _FORGET_MS
            if queue.broker not in brokers and not is_old and queues:
                why = f"the nameservers have no route to {queue.broker}"
                self._away.setdefault(queue.broker, why)
                yield queue, _troubled(seen, why)

    async def _read_ranges(self, queues: list[QueueName], recorded: frozenset[QueueName]) -> None:
        """Read the offsets of *queues*, and the ends of those of their records that exist."""
        group, ask = self._lane.name, BrokerQuestions()

        async def at_broker(there: list[QueueName]) -> None:
            twins = [twin for queue in there if (twin := _records_of(group, queue)) in recorded]
            ends = await self._client.queue_ranges(twins)
            self._ranges |= await self._client.queue_ranges(there, group=group)
            self._ends |= {twin: each.end for twin, each in ends.items()}

        await ask.ask_each((each for each in queues if each.broker not in self._away), at_broker)
        self._away |= ask.silent
        self._failures |= ask.unanswered
        for why in ask.unanswered.values():
            self._complain(why)

    def _trouble_of(self, queue: QueueName) -> str | None:
        """Return why nothing is known of *queue* now; None if it can be asked for."""
        return self._failures.get(queue.broker) or self._away.get(queue.broker)

    async def _look(self, queue: QueueName, earlier: _Seen | None, at_ms: int) -> _Seen:
        seen = earlier or _Seen(KnownQueue(queue=queue))
        if (why := self._trouble_of(queue)) is not None:
            return _troubled(seen, why)
        try:
            return await self._ask(queue, seen, at_ms)
        except RemotingError as error:
            if not isinstance(error, BrokerError):
                self._away[queue.broker] = str(error)
            self._complain(error)
            return _troubled(seen, str(error))

    async def _ask(self, queue: QueueName, seen: _Seen, at_ms: int) -> _Seen:
        found = self._ranges[queue]
        offsets = _offsets_of(found)
        records = await self._records(queue, seen.records, self._ends)
        last = records.last
        if last is not None and found.life not in (None, last.life):
            life = await self._client.topic_life(queue)
            last = last.in_life(life.number, former=life.former)
        owned = self._owner_of(last)
        own = None if last is None or owned is QueueOwner.FREE else last.own
        known = KnownQueue(
            queue=queue,
            owned=owned,
            source=Source.BROKERS if last is None or last.snapshot is None else Source.RECORDS,
            at_ms=at_ms,
            owner=None if own is None else own.owner,
            http=None if own is None else own.http or None,
            ever_owned=records.end > 0,
            end=offsets.end,
            committed=offsets.committed,
            lag=offsets.lag(from_end=self._lane.settings.start_from != "earliest"),
        )
        if owned is QueueOwner.ELSEWHERE:
            return _Seen(known, records)
        figures = Recorded.of(last, offsets, deleted=records.end > 0)
        twin, parked = seen.twin, 0 if figures.parked_keys == 0 else None
        if figures.parked_keys:
            twin, parked = await self._parked(queue, twin)
        stored = await self._stored(queue, seen.stored, last, offsets, lag=known.lag)
        known = replace(
            known,
            unfinished=figures.unfinished,
            blocked=figures.blocked,
            parked=parked,
            parked_keys=figures.parked_keys,
            paused_keys=figures.paused_keys,
            attempts=figures.attempts,
            oldest_ms=stored[1],
            pause=figures.pause,
        )
        return _Seen(known, records, twin, stored)

    def _owner_of(self, last: LastOwner | None) -> QueueOwner:
        if last is None or last.clean:
            return QueueOwner.FREE
        owner = last.own.owner
        is_other = owner in self._members and owner != self._client.client_id
        return QueueOwner.ELSEWHERE if is_other else QueueOwner.GONE

    async def _records(
        self, queue: QueueName, before: _Records, ends: Mapping[QueueName, int]
    ) -> _Records:
        """Return the last records of *queue*, if it has any according to their *ends*; they are
        read again only if they changed.

        While another proxy owns it they change all the time, and one of them tells that it still
        does.
        """
        group, last = self._lane.name, before.last
        end = ends.get(_records_of(group, queue))
        if end is None:
            return _Records(0)
        if end == before.end:
            return before
        owned_there = last is not None and self._owner_of(last) is QueueOwner.ELSEWHERE
        if (
            last is not None
            and owned_there
            and await self._log.goes_on(group, queue, last, end=end)
        ):
            return _Records(end, last)
        last, _ = await self._log.last(group, queue, end=end)
        return _Records(end, last)

    async def _parked(self, queue: QueueName, before: _Records) -> tuple[_Records, int | None]:
        """Return the records of the parked twin of *queue*, and the copies that wait there."""
        group = self._lane.name
        twin = queue._replace(topic=parked_topic(group, self._topic))
        if twin not in await _queues(self._client, twin.topic):
            return before, None
        of_twin = _records_of(group, twin)
        ends: dict[QueueName, int] = {}
        if of_twin in await _queues(self._client, of_twin.topic):
            ends[of_twin] = await self._client.max_offset(of_twin)
        records = await self._records(twin, before, ends)
        offsets = await _offsets(self._client, group, [twin])
        return records, parked_copies(records.last, offsets[twin])

    async def _stored(
        self,
        queue: QueueName,
        before: tuple[int, int | None],
        last: LastOwner | None,
        offsets: Offsets,
        *,
        lag: int | None,
    ) -> tuple[int, int | None]:
        """Return offset and store time of the oldest message of *queue* that waits."""
        offset = oldest_of(None if last is None else last.snapshot, offsets)
        if offset is None or not lag:
            return -1, None
        if offset == before[0] and before[1] is not None:
            return before
        result = await self._client.pull(
            queue, group=self._lane.name, offset=offset, max_messages=1, suspend_ms=0
        )
        return offset, next((each.store_ms for each in result.messages), None)

    def _complain(self, error: RemotingError | str) -> None:
        _noisy.warning(
            self._lane.name,
            "queues without an owner are not known",
            group=self._lane.name,
            topic=self._topic,
            reason=str(error),
        )


def _troubled(seen: _Seen, why: str) -> _Seen:
    return replace(seen, known=replace(seen.known, trouble=why))


async def _queues(client: BrokerClient, topic: Topic) -> list[QueueName]:
    """Return the queues of *topic*; none if it does not exist. Raises RemotingError."""
    try:
        return await client.queues(topic)
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        raise


async def _offsets(
    client: BrokerClient, group: Group, queues: Iterable[QueueName]
) -> dict[QueueName, Offsets]:
    """Return the offsets of *group* in *queues*. Raises RemotingError."""
    found = await client.queue_ranges(queues, group=group)
    return {queue: _offsets_of(each) for queue, each in found.items()}


def _offsets_of(found: QueueRange) -> Offsets:
    return Offsets(found.begin, found.end, found.committed)


def _records_of(group: Group, queue: QueueName) -> QueueName:
    """Return the queue with the ownership records of *queue*."""
    return QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id)


def _topics_of(lane: GroupLane) -> tuple[str, ...]:
    return tuple(topic.name for topic in lane.settings.topics)


def _without_clients(lane: GroupLane) -> list[TopicSettings]:
    """Return the topics of *lane* that no client at this proxy wants."""
    presence = lane.presence
    if lane.is_broadcast or (presence.joined and presence.shows_all):
        return []
    shown = presence.shown if presence.joined else frozenset()
    return [topic for topic in lane.settings.topics if topic.name not in shown]
