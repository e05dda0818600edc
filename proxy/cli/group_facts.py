"""Collects the facts about a group for ``proxy.diagnosis`` from proxies and brokers.

A proxy or broker that does not answer is a fact, not an error. Topics and owners are read from the
ownership records at the brokers, so they are known even if a proxy is down.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from broker_core.client import BrokerClient
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from proxy.cli.connect import ask_proxy, broker_client
from proxy.cli.owner_requests import path_of
from proxy.core.records.record import ownership_topic
from proxy.diagnosis.facts import Facts, KeyFacts, ProxyFacts, QueueFacts, group_of, jump_of, key_of
from proxy.errors import OrderlaneError, OwnedElsewhere
from proxy.upstream.ownership.owner_book import OwnerBook, OwnerRow
from proxy.upstream.records.ownership_log import OwnershipLog

_KEYS = 20
#: Concurrent queries of the queues of one broker.
_AT_ONCE = 16


async def group_facts(
    group: str, *, http: Sequence[str], nameserver: str, topics: Iterable[str] = (), default: str
) -> Facts:
    """Return the facts about *group* from all proxies and brokers.

    *http* are proxies to ask first, *topics* further topics of the group. No proxy needs to run at
    the address *default*. Raises OrderlaneError if all answer and the group is unknown.
    """
    asked = await _ask_all(group, http)
    wanted = {*topics, *(name for each in asked.values() for name in _topics_of(each))}
    brokers = None
    try:
        async with broker_client(nameserver) as client:
            brokers = _Brokers(client, Group(group))
            await brokers.look(wanted)
            asked |= await _ask_all(group, sorted(brokers.addresses - asked.keys()))
            late = {name for each in asked.values() for name in _topics_of(each)}
            await brokers.look(late - brokers.topics)
            await brokers.check(_brokers_named(asked.values()))
            trouble = brokers.trouble
    except OrderlaneError as error:  # no nameserver answers
        trouble = str(error)
    proxies = _without_default(asked, default, set() if brokers is None else brokers.addresses)
    known = any(each.group is not None for each in proxies)
    silent = trouble or any(each.trouble for each in proxies)
    if not (known or silent or (brokers is not None and brokers.queues)):
        raise OrderlaneError(
            f"there is no group {group!r} at {', '.join(each.http for each in proxies)}, and no"
            " record of it at the brokers: see orderlane groups ls"
        )
    return Facts(
        group=group,
        at_ms=wall_ms(),
        nameserver=nameserver,
        nameserver_trouble=trouble,
        brokers_away={} if brokers is None else dict(sorted(brokers.away.items())),
        topics_missing=() if brokers is None else tuple(sorted(brokers.missing)),
        queues=() if brokers is None else tuple(brokers.queues),
        proxies=tuple(proxies),
    )


def _without_default(
    asked: dict[str, ProxyFacts], default: str, owners: set[str]
) -> list[ProxyFacts]:
    """Omit the default address if it does not answer, owns no queue, and other proxies answer."""
    others = any(not each.trouble for each in asked.values())
    return [
        each
        for at, each in sorted(asked.items())
        if not (at == default and each.trouble and others and at not in owners)
    ]


def _topics_of(proxy: ProxyFacts) -> list[str]:
    return [] if proxy.group is None else [topic.name for topic in proxy.group.topics]


def _brokers_named(proxies: Iterable[ProxyFacts]) -> set[str]:
    """Return brokers of owned queues; one that is down may be missing from its topic's route."""
    return {
        queue.queue.rpartition("_")[0]
        for each in proxies
        if each.group is not None
        for queue in each.group.queues
    }


# ---- proxies -------------------------------------------------------------------------------------


async def _ask_all(group: str, addresses: Sequence[str]) -> dict[str, ProxyFacts]:
    """Ask the proxies at *addresses*; of workers that share an address, each one."""
    found: dict[str, ProxyFacts] = {}
    left = list(dict.fromkeys(addresses))
    while left:
        answers = await asyncio.gather(
            *(asyncio.to_thread(_proxy, at, group) for at in left), return_exceptions=True
        )
        more: list[str] = []
        for at, answer in zip(left, answers, strict=True):
            if isinstance(answer, OwnedElsewhere):
                more += answer.addresses
            elif isinstance(answer, OrderlaneError):
                found[at] = ProxyFacts(http=at, trouble=str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[at] = answer
        left = [each for each in dict.fromkeys(more) if each not in found]
    return found


def _proxy(http: str, group: str) -> ProxyFacts:
    """Ask one proxy. Raises OwnedElsewhere if workers share the address, OrderlaneError."""
    before_ms = wall_ms()
    process = orjson.loads(ask_proxy(http, path_of("process")))
    after_ms = wall_ms()
    row = orjson.loads(ask_proxy(http, path_of("groups"))).get(group)
    held = None if row is None else group_of(row)
    topics = () if held is None or not held.queues else held.topics

    def keys(name: str) -> tuple[KeyFacts, ...]:
        places = (path_of("groups", group, "topics", topic.name, "keys", name) for topic in topics)
        return tuple(key_of(row) for place in places for row in _look(http, place))

    return ProxyFacts(
        http=http,
        proxy=process["proxy"],
        away=process["away"],
        clock_ahead_s=_ahead_s(process["wall_ms"], before_ms, after_ms),
        jumps=tuple(jump_of(each) for each in process["clock_jumps"]),
        memory_bytes=process["memory_bytes"],
        memory_limit_bytes=process["memory_limit_bytes"],
        group=held,
        blocked=keys("blocked"),
        paused=keys("paused"),
    )


def _look(http: str, path: str) -> list[dict[str, Any]]:
    """Return the rows of a key list; none if the group has left this proxy."""
    try:
        return list(orjson.loads(ask_proxy(http, path)))
    except OwnedElsewhere:
        return []


def _ahead_s(their_ms: int, before_ms: int, after_ms: int) -> float:
    """Return how far their clock is ahead, beyond the uncertainty of the round trip."""
    if before_ms <= their_ms <= after_ms:
        return 0.0
    return (their_ms - (after_ms if their_ms > after_ms else before_ms)) / 1000


# ---- brokers -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Brokers:
    """Facts about a group from the brokers, topic by topic."""

    client: BrokerClient
    group: Group
    topics: set[str] = field(default_factory=set)
    queues: list[QueueFacts] = field(default_factory=list)
    away: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    """HTTP addresses of proxies that own queues."""
    trouble: str = ""
    _checked: set[str] = field(default_factory=set)

    async def look(self, topics: Iterable[str]) -> None:
        """Query the queues of *topics*; if empty, of all topics with ownership records."""
        try:
            wanted = set(topics) or await self._on_record()
        except RemotingError as error:
            self.trouble = str(error)
            return
        self.topics |= wanted
        by_broker: defaultdict[str, list[QueueName]] = defaultdict(list)
        for topic in sorted(wanted):
            for queue in await self._queues_of(topic):
                by_broker[queue.broker].append(queue)
        await self.check(by_broker)
        turns = asyncio.Semaphore(_AT_ONCE)
        for broker, queues in sorted(by_broker.items()):
            rows = await self._owners(broker, queues)
            found = await asyncio.gather(
                *(self._facts(queue, rows.get(queue), turns) for queue in queues)
            )
            self.queues += found

    async def check(self, brokers: Iterable[str]) -> None:
        """Check which of *brokers* answer."""
        new = sorted(set(brokers) - self._checked)
        self._checked |= set(new)
        await asyncio.gather(*map(self._check, new))

    async def _check(self, broker: str) -> None:
        try:
            await self.client.broker_start_ms(broker)
        except RemotingError as error:
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
            return await self.client.queues(Topic(topic), fresh=True)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                self.trouble = str(error)
            else:
                self.missing.add(topic)
        except RemotingError as error:
            self.trouble = str(error)
        return []

    async def _owners(self, broker: str, queues: list[QueueName]) -> dict[QueueName, OwnerRow]:
        if broker in self.away:
            return {}
        book = OwnerBook(self.client, OwnershipLog(self.client))
        try:
            rows = await book.rows(self.group, queues)
        except RemotingError as error:
            self.away[broker] = str(error)
            return {}
        self.addresses |= {
            row.last.own.http
            for row in rows
            if row.last is not None and row.state == "owned" and row.last.own.http
        }
        return {row.queue: row for row in rows}

    async def _facts(
        self, queue: QueueName, row: OwnerRow | None, turns: asyncio.Semaphore
    ) -> QueueFacts:
        facts = QueueFacts(queue.topic, queue.qid)
        if row is not None:
            owner = None if row.last is None or row.state == "free" else row.last.own.owner
            facts = replace(facts, state=row.state, owner=owner)
        if queue.broker in self.away:
            return facts
        async with turns:
            try:
                return replace(
                    facts,
                    end=await self.client.max_offset(queue),
                    committed=await self.client.committed_offset(self.group, queue),
                    first=await self.client.min_offset(queue),
                )
            except RemotingError as error:
                self.away[queue.broker] = str(error)
                return facts
