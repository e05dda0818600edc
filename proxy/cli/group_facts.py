"""Collects the facts about a group for ``proxy.diagnosis`` from proxies and brokers.

A proxy or broker that does not answer is a fact, not an error. Topics and owners are read from the
ownership records at the brokers (``proxy.operator.broker_facts``), so they are known even if a
proxy is down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from broker_core.clock import wall_ms
from broker_core.names import Group
from proxy.cli.connect import NoAnswerInTime, ask_proxy, broker_client, proxy_groups
from proxy.cli.owner_requests import path_of
from proxy.diagnosis.facts import (
    Facts,
    HeldGroup,
    KeyLists,
    ProxyFacts,
    Refused,
    group_of,
    jump_of,
    refused_of,
)
from proxy.errors import OrderlaneError, OwnedElsewhere
from proxy.operator.broker_facts import BrokerFacts
from proxy.operator.readers import SharedAnswers

#: Keys of each kind that a proxy is asked for, per topic.
_LISTS = {"blocked": 1_000, "paused": 1_000, "parked": 10_000, "top": 20}
#: Time for one of them: the proxy may wait for a broker.
_LIST_WITHIN_S = 10.0


class Views(SharedAnswers[dict[str, Any]]):
    """The views of all groups, by the address of a proxy, for those that are diagnosed together: a
    view is long, and a proxy with a thousand groups would be asked for it a thousand times.
    """

    async def at(self, http: str) -> dict[str, Any]:
        """Return that of the proxy at *http*. Raises OrderlaneError."""
        return await self.of(http, partial(asyncio.to_thread, proxy_groups, http))


async def group_facts(
    group: str,
    *,
    http: Sequence[str],
    nameserver: str,
    views: Views,
    topics: Iterable[str] = (),
    default: str,
) -> Facts:
    """Return the facts about *group* from all proxies and brokers.

    *http* are proxies to ask first, *topics* further topics of the group. No proxy needs to run at
    the address *default*. Raises OrderlaneError if all answer and the group is unknown.
    """
    asked = await _ask_all(group, http, views)
    wanted = {*topics, *(name for each in asked.values() for name in _topics_of(each))}
    brokers = None
    try:
        async with broker_client(nameserver) as client:
            latest = any(_from_latest(each) for each in asked.values())
            brokers = BrokerFacts(client, Group(group), from_latest=latest)
            await brokers.look(wanted)
            asked |= await _ask_all(group, sorted(brokers.addresses - asked.keys()), views)
            late = {name for each in asked.values() for name in _topics_of(each)}
            if late := late - brokers.topics:
                await brokers.look(late)
            await brokers.check(_brokers_named(asked.values()))
            await brokers.look_at_dead_letters()
            trouble, not_registered = brokers.trouble, brokers.not_registered
    except OrderlaneError as error:  # no nameserver answers
        trouble, not_registered = f"does not answer: {error}", ""
    proxies = _without_default(asked, default, set() if brokers is None else brokers.addresses)
    known = any(each.group is not None for each in proxies)
    silent = trouble or not_registered or any(each.trouble for each in proxies)
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
        not_registered=not_registered,
        brokers_away={} if brokers is None else dict(sorted(brokers.away.items())),
        brokers_refusing={} if brokers is None else dict(sorted(brokers.refusing.items())),
        topics_missing=() if brokers is None else tuple(sorted(brokers.missing)),
        not_readable={} if brokers is None else brokers.not_readable,
        dead_letters=0 if brokers is None else brokers.dead_letters,
        dead_letters_known=brokers is not None and brokers.dead_letters_known,
        # Each client of a broadcast group has offsets of its own.
        queues=() if brokers is None or _is_broadcast(proxies) else tuple(brokers.queues),
        proxies=tuple(proxies),
    )


def _without_default(
    asked: dict[str, ProxyFacts], default: str, owners: set[str]
) -> list[ProxyFacts]:
    """Omit the default address if it does not answer, owns no queue, and other proxies answer; and
    a second address of the same proxy, whose figures would count twice.
    """
    others = any(not each.trouble for each in asked.values())
    kept: dict[str, ProxyFacts] = {}
    for at, each in sorted(asked.items()):
        if not (at == default and each.trouble and others and at not in owners):
            kept.setdefault(each.proxy or at, each)
    return list(kept.values())


def _is_broadcast(proxies: Iterable[ProxyFacts]) -> bool:
    return any(each.group is not None and each.group.mode == "broadcast" for each in proxies)


def _from_latest(proxy: ProxyFacts) -> bool:
    return proxy.group is not None and proxy.group.start_from != "earliest"


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


async def _ask_all(group: str, addresses: Sequence[str], views: Views) -> dict[str, ProxyFacts]:
    """Ask the proxies at *addresses*; of workers that share an address, each one."""
    found: dict[str, ProxyFacts] = {}
    left = list(dict.fromkeys(addresses))
    while left:
        answers = await asyncio.gather(
            *(_proxy(at, group, views) for at in left), return_exceptions=True
        )
        more: list[str] = []
        for at, answer in zip(left, answers, strict=True):
            if isinstance(answer, OwnedElsewhere):
                more += answer.addresses
            elif isinstance(answer, OrderlaneError):
                busy = isinstance(answer, NoAnswerInTime)
                found[at] = ProxyFacts(http=at, trouble=str(answer), busy=busy)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[at] = answer
        left = [each for each in dict.fromkeys(more) if each not in found]
    return found


async def _proxy(http: str, group: str, views: Views) -> ProxyFacts:
    """Ask one proxy. Raises OwnedElsewhere if workers share the address, OrderlaneError."""
    before_ms = wall_ms()
    process = orjson.loads(await asyncio.to_thread(ask_proxy, http, path_of("process")))
    after_ms = wall_ms()
    held = await _held(http, group, views)
    topics = () if held is None or not held.queues else held.topics

    keys = KeyLists()
    wanted = [(topic.name, name) for topic in topics for name in _LISTS]
    found = await asyncio.gather(
        *(asyncio.to_thread(_look, http, group, *each) for each in wanted), return_exceptions=True
    )
    for (topic, name), rows in zip(wanted, found, strict=True):
        if isinstance(rows, BaseException):
            raise rows
        keys.add(name, topic, rows, limit=_LISTS[name])
    return ProxyFacts(
        http=http,
        proxy=process["proxy"],
        thrift=process.get("thrift", ""),
        away=process["away"],
        clock_ahead_s=_ahead_s(process["wall_ms"], before_ms, after_ms),
        jumps=tuple(jump_of(each) for each in process["clock_jumps"]),
        memory_bytes=process["memory_bytes"],
        memory_limit_bytes=process["memory_limit_bytes"],
        group=held,
        refused=await asyncio.to_thread(_refused, http),
        **keys.facts(),
    )


def _refused(http: str) -> tuple[Refused, ...]:
    """Return the newest refusals; none if the caller may not see them."""
    try:
        answer = orjson.loads(ask_proxy(http, path_of("refusals")))
    except OrderlaneError:
        return ()
    return tuple(refused_of(row) for row in answer["refusals"] if row["port"] == "thrift")


async def _held(http: str, group: str, views: Views) -> HeldGroup | None:
    """Return *group* as the proxy has it; None if it has not."""
    row = (await views.at(http)).get(group)
    if row is None:
        return None
    held = group_of(row)
    if any(topic.rate_limited for topic in held.topics):
        place = path_of("groups", group)
        described = orjson.loads(await asyncio.to_thread(ask_proxy, http, place))
        held = replace(held, stored=bool(described["version"]))
    return held


def _look(http: str, group: str, topic: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of the key list *name*; none if the group has left this proxy."""
    place = path_of("groups", group, "topics", topic, "keys", name)
    path = f"{place}?limit={_LISTS[name]}"
    try:
        return list(orjson.loads(ask_proxy(http, path, timeout_s=_LIST_WITHIN_S)))
    except OwnedElsewhere:
        return []


def _ahead_s(their_ms: int, before_ms: int, after_ms: int) -> float:
    """Return how far their clock is ahead, beyond the uncertainty of the round trip."""
    if before_ms <= their_ms <= after_ms:
        return 0.0
    return (their_ms - (after_ms if their_ms > after_ms else before_ms)) / 1000
