"""Operations on topics: list, describe, create, update, delete.

Any proxy can run them, for all topics. They use RocketMQ's own requests, so they work with embedded
and Apache's brokers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from broker_core.client import QueueRange
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic, check_name, is_internal_topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.route_bodies import Perm, QueueData, TopicRoute
from proxy.core.access.audit_record import Change
from proxy.errors import UnknownName, WrongState
from proxy.operator.readers import Readers
from proxy.upstream.broker_questions import BrokerQuestions
from proxy.upstream.context import UpstreamContext

#: Topics of one page, queues of which one request reads offsets, and groups that it describes.
MOST_TOPICS, MOST_QUEUES, MOST_GROUPS = 100, 1_000, 100
#: Committed offsets read to describe one topic: groups times queues.
_MOST_COMMITTED = 4_096
#: Unit of fileReservedTime: hours.
_RETENTION = "fileReservedTime"
#: The end offset, the begin offset.
_Ends = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TopicsWish:
    """A page of topics: up to *limit* names behind *after* that contain *contains*.

    ``everything`` includes topics of brokers and gateways.
    """

    after: str = ""
    limit: int = MOST_TOPICS
    contains: str = ""
    everything: bool = False


@dataclass(frozen=True, slots=True)
class TopicWish:
    """A new topic, or a deletion: the caller and the reason. *broker* None: all brokers."""

    by: str
    reason: str
    dry_run: bool = False
    queues: int = 8
    perm: int = Perm.READ_WRITE
    broker: str | None = None


@dataclass(frozen=True, slots=True)
class TopicUpdate:
    """A change of a topic: the caller and the reason. None: as it is; *broker* None: all that have
    the topic.
    """

    by: str
    reason: str
    dry_run: bool = False
    queues: int | None = None
    perm: int | None = None
    broker: str | None = None


def perm_text(perm: int) -> str:
    """Return permissions as operators write them: ``RW``, ``R``, ``W``, or ``-`` for none."""
    return ("R" if perm & Perm.READ else "") + ("W" if perm & Perm.WRITE else "") or "-"


class TopicDesk:
    """Operations on topics, one object per process."""

    def __init__(self, context: UpstreamContext, readers: Readers) -> None:
        self._context = context
        self._readers = readers
        self._turn = asyncio.Lock()  # of operators who create or change a topic

    async def rows(self, wish: TopicsWish) -> dict[str, Any]:
        """Return a page of topics by name. ``next`` is the ``after`` of the following page.

        ``messages`` is None for a topic whose brokers did not answer, or after 1,000 queues in one
        page. Raises RemotingError, Overloaded.
        """
        async with self._readers.place():
            known = await self._context.client.topics()
            names = sorted(
                name
                for name in known
                if name > wish.after
                and wish.contains in name
                and (wish.everything or not is_internal_topic(name))
            )
            page = names[: wish.limit]
            ask, rows, left = BrokerQuestions(), [], MOST_QUEUES
            for name in page:
                route = await self._route(name)
                if route is None:
                    continue  # deleted meanwhile
                queues = _queues(name, route)
                left -= len(queues)
                ends = await self._ends(ask, queues) if left >= 0 else {}
                rows.append(_row(name, route, queues, ends))
        return {
            "topics": rows,
            "next": page[-1] if len(names) > len(page) else None,
            "unanswered": ask.unanswered,
        }

    async def describe(self, name: str) -> dict[str, Any]:
        """Return the queues, brokers and consumer groups of a topic.

        At most 1,000 queues and 100 groups; ``complete`` is False if some are left out. Raises
        UnknownName, RemotingError, Overloaded.
        """
        async with self._readers.place():
            topic, route = await self._known(name)
            queues = _queues(topic, route)
            ask, shown = BrokerQuestions(), queues[:MOST_QUEUES]
            ends = await self._ends(ask, shown)
            brokers = await asyncio.gather(
                *(self._broker(ask, topic, data) for data in sorted(route.queues, key=_broker_of))
            )
            is_whole = len(ends) == len(queues)
            groups, all_groups = await self._groups(ask, topic, ends, is_whole=is_whole)
        return {
            **_row(topic, route, queues, ends),
            "queue_list": [
                {"queue": queue.qid, "begin": ends[queue][1], "end": ends[queue][0]}
                if queue in ends
                else {"queue": queue.qid, "begin": None, "end": None}
                for queue in shown
            ],
            "broker_list": list(brokers),
            "groups": groups,
            "unanswered": ask.unanswered,
            "complete": all_groups and len(shown) == len(queues) and not ask.unanswered,
        }

    async def create(self, name: str, wish: TopicWish) -> dict[str, Any]:
        """Create a topic. Raises UnknownName for an invalid name, WrongState if it exists,
        RemotingError.
        """
        topic = _of_applications(name)
        if wish.broker is not None and wish.broker not in await self._brokers():
            known = ", ".join(await self._brokers()) or "none"
            raise UnknownName(f"no broker {wish.broker!r} is registered; registered: {known}")
        await self._check_is_new(topic)
        made = {"queues": wish.queues, "perm": perm_text(wish.perm), "broker": wish.broker}
        if not wish.dry_run:
            change = _change("topics create", topic, wish, None, made)
            async with self._turn, self._context.audit.change(change):
                await self._check_is_new(topic)  # still, after the wait for the audit record
                await self._context.client.create_topic(
                    topic, queues=wish.queues, broker=wish.broker, perm=wish.perm
                )
        return {"topic": topic, **made, "dry_run": wish.dry_run}

    async def update(self, name: str, wish: TopicUpdate) -> dict[str, Any]:
        """Change permissions and numbers of queues; return both at each broker, and as before.

        With the permission to read, all queues that are written can be read then. Raises
        UnknownName; WrongState if nothing is to be changed, or queues would be hidden;
        RemotingError.
        """
        topic = _of_applications(name)
        if wish.queues is None and wish.perm is None:
            raise WrongState("nothing to change: give the number of queues, or perm")
        if wish.dry_run:
            return await self._update(topic, wish)
        async with self._turn:
            return await self._update(topic, wish)

    async def _update(self, topic: Topic, wish: TopicUpdate) -> dict[str, Any]:
        before = await self._shapes(topic, wish.broker)
        after = [_updated(each, wish) for each in before]
        if not wish.dry_run:
            shown = {each.broker: _shape(each) for each in before}
            change = _change(
                "topics update", topic, wish, shown, {each.broker: _shape(each) for each in after}
            )
            async with self._context.audit.change(change):
                if await self._shapes(topic, wish.broker) != before:
                    raise WrongState(
                        f"topic {topic!r} was changed meanwhile: look at it, then repeat the change"
                    )
                await self._context.client.define_topic(topic, after)
        return {
            "topic": topic,
            "before": [{"broker": each.broker, **_shape(each)} for each in before],
            "brokers": [{"broker": each.broker, **_shape(each)} for each in after],
            "dry_run": wish.dry_run,
        }

    async def delete(self, name: str, wish: TopicWish) -> dict[str, Any]:
        """Delete a topic with its messages at all brokers.

        Returns what is (or with a dry run, would be) lost. Raises UnknownName, RemotingError; with
        BrokersAway, a repetition continues.
        """
        topic = _of_applications(name)
        described = await self.describe(topic)
        lost = {
            "messages": described["messages"],
            "groups": {row["group"]: row["lag"] for row in described["groups"]},
        }
        if not wish.dry_run:
            # A kept route names brokers that are not registered now, so the deletion reports them.
            await self._context.client.broker_names(topic)
            change = _change("topics delete", topic, wish, lost, {"deleted": True})
            async with self._context.audit.change(change):
                await self._context.client.deletions.delete_topic(topic)
        return {"topic": topic, **lost, "dry_run": wish.dry_run}

    # ---- inside ---------------------------------------------------------------------------------

    async def _brokers(self) -> list[str]:
        return await self._context.client.all_brokers()

    async def _route(self, topic: Topic) -> TopicRoute | None:
        try:
            return await self._context.client.topic_route(topic)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return None

    async def _check_is_new(self, topic: Topic) -> None:
        if (route := await self._route(topic)) is not None:
            raise WrongState(
                f"topic {topic!r} exists, with {len(_queues(topic, route))} readable queues"
            )

    async def _shapes(self, name: str, broker: str | None) -> list[QueueData]:
        """Return a topic as it is at *broker* (None: at each that has it). Raises UnknownName."""
        topic, route = await self._known(name)
        found = sorted(route.queues, key=_broker_of)
        if there := [each for each in found if broker in (None, each.broker)]:
            return there
        known = ", ".join(sorted({each.broker for each in found}))
        raise UnknownName(
            f"broker {broker!r} does not have topic {topic!r}; brokers that have it: {known}"
        )

    async def _known(self, name: str) -> tuple[Topic, TopicRoute]:
        topic = _checked(name)
        if (route := await self._route(topic)) is None:
            raise UnknownName(f"there is no topic {topic!r}: see orderlane topics ls")
        return topic, route

    async def _ends(
        self, ask: BrokerQuestions, queues: Iterable[QueueName]
    ) -> dict[QueueName, _Ends]:
        """Return end and begin of *queues*, without those of brokers that do not answer."""
        found = await self._ranges(ask, queues)
        return {queue: (each.end, each.begin) for queue, each in found.items()}

    async def _ranges(
        self, ask: BrokerQuestions, queues: Iterable[QueueName], group: Group | None = None
    ) -> dict[QueueName, QueueRange]:
        by_broker: defaultdict[str, list[QueueName]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker].append(queue)
        read = self._context.client.queue_ranges
        answers = await asyncio.gather(
            *(
                ask.ask(broker, partial(read, there, group=group))
                for broker, there in by_broker.items()
            )
        )
        return {queue: each for answer in answers for queue, each in (answer or {}).items()}

    async def _broker(self, ask: BrokerQuestions, topic: Topic, data: QueueData) -> dict[str, Any]:
        client, name = self._context.client, data.broker
        settings = await ask.ask_optional(name, partial(client.broker_settings, name))
        return {
            "broker": name,
            "read_queues": data.read_queues,
            "write_queues": data.write_queues,
            "perm": perm_text(data.perm),
            "put_rate": await ask.ask_optional(name, partial(client.put_rate, name, topic)),
            "retention_hours": _hours(settings or {}),
        }

    async def _groups(
        self,
        ask: BrokerQuestions,
        topic: Topic,
        ends: Mapping[QueueName, _Ends],
        *,
        is_whole: bool,
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return the consumer groups of *topic* with their lags, and whether these are all.
        *is_whole*: *ends* has all queues; otherwise lags are unknown.
        """
        client = self._context.client
        brokers = sorted({queue.broker for queue in ends})
        answers = await asyncio.gather(
            *(ask.ask_optional(name, partial(client.consumers_at, name, topic)) for name in brokers)
        )
        names = sorted({group for answer in answers for group in answer or ()})
        rows: list[dict[str, Any]] = []
        left = _MOST_COMMITTED
        for group in names[:MOST_GROUPS]:
            left -= len(ends)
            if left < 0 or not is_whole:
                rows.append({"group": group, "lag": None})
                continue
            ranges = await self._ranges(ask, ends, group)
            lag = sum(
                max(0, end - max(begin, ranges[queue].committed or 0))
                for queue, (end, begin) in ends.items()
                if queue in ranges
            )
            rows.append({"group": group, "lag": None if ask.unanswered else lag})
        return rows, len(names) <= MOST_GROUPS and None not in answers


def _checked(name: str) -> Topic:
    try:
        return Topic(check_name("topic", name))
    except ValueError as error:
        raise UnknownName(str(error)) from None


def _of_applications(name: str) -> Topic:
    topic = _checked(name)
    if is_internal_topic(topic):
        raise WrongState(
            f"topic {topic!r} belongs to brokers and gateways, which create and change it: name a"
            " topic of an application"
        )
    return topic


def _queues(topic: Topic, route: TopicRoute) -> list[QueueName]:
    return sorted(
        QueueName(topic, data.broker, number)
        for data in route.queues
        if data.perm & Perm.READ
        for number in range(data.read_queues)
    )


def _broker_of(data: QueueData) -> str:
    return data.broker


def _shape(data: QueueData) -> dict[str, Any]:
    return {
        "read_queues": data.read_queues,
        "write_queues": data.write_queues,
        "perm": perm_text(data.perm),
    }


def _updated(data: QueueData, wish: TopicUpdate) -> QueueData:
    """Return the topic at one broker after the change. Raise WrongState if it would hide queues."""
    perm, most = data.perm, max(data.read_queues, data.write_queues)
    if wish.perm is not None:
        perm = data.perm & ~Perm.READ_WRITE | wish.perm
    if wish.queues is None:
        read = most if perm & Perm.READ else data.read_queues
        return replace(data, perm=perm, read_queues=read)
    if wish.queues < most:
        raise WrongState(
            f"the topic has {most} queues at broker {data.broker}, and with {wish.queues} the"
            f" messages in the others could not be read: give at least {most}"
        )
    return replace(data, perm=perm, read_queues=wish.queues, write_queues=wish.queues)


def _row(
    topic: Topic,
    route: TopicRoute,
    queues: list[QueueName],
    ends: Mapping[QueueName, _Ends],
) -> dict[str, Any]:
    messages = sum(end - begin for end, begin in ends.values())
    return {
        "topic": topic,
        "brokers": sorted({data.broker for data in route.queues}),
        "queues": len(queues),
        "messages": messages if len(ends) == len(queues) else None,
    }


def _hours(settings: Mapping[str, str]) -> float | None:
    try:
        hours = float(settings.get(_RETENTION, ""))
    except ValueError:
        return None
    return hours if 0 <= hours < float("inf") else None


def _change(
    verb: str, topic: Topic, wish: TopicWish | TopicUpdate, before: Any, after: Any
) -> Change:
    return Change(
        actor=wish.by,
        verb=verb,
        group="",
        reason=wish.reason,
        topic=topic,
        target=topic,
        before=before,
        after=after,
    )
