"""Runs key verbs in the queues owned by this proxy.

Most verbs apply to one queue: the named one, or the first that has the key. Pause and resume apply
to all queues of the topic or group, even those without messages of the key.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from proxy.core.access.audit_record import Change
from proxy.core.keys.order_key import key_text, known_as
from proxy.core.pipeline.key_views import slices
from proxy.core.records.replay import LastOwner
from proxy.errors import OrderlaneError, OwnedElsewhere, Unavailable, UnknownName, WrongState
from proxy.operator.key_models import KeyBody
from proxy.operator.key_table import KeyVerb, Reach, Wish
from proxy.operator.key_verbs import Act, KeyVerbs
from proxy.operator.request_models import ChangeBody
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.parking.parked_keys import Parking


@dataclass(frozen=True, slots=True)
class ParkedWish:
    """Selects parked keys: at most *limit* with *reason* in their reason, behind *after*, the queue
    and key of a row, such as ``broker-a_0@customer-17``.
    """

    limit: int = 10_000
    reason: str = ""
    after: str = ""


class KeyDesk:
    """Finds the queue of a key. If another proxy owns it, the error names that proxy."""

    def __init__(
        self, context: UpstreamContext, ownerships: Mapping[Group, GroupOwnership]
    ) -> None:
        self._context = context
        self._ownerships = ownerships

    async def parked(self, group: str, topic: str, wish: ParkedWish) -> list[dict[str, Any]]:
        """Return parked keys by queue. Raises UnknownName for an unknown group or topic."""
        found: list[dict[str, Any]] = []
        async for rows in self._parked(group, topic, wish):
            found += rows
            if len(found) >= wish.limit:
                break
        return found[: wish.limit]

    async def export_parked(self, group: str, topic: str, wish: ParkedWish) -> AsyncIterator[bytes]:
        """Yield all parked keys that match as lines of JSON. Raises UnknownName."""
        async for rows in self._parked(group, topic, wish):
            yield b"".join(orjson.dumps(row) + b"\n" for row in rows)

    async def _parked(
        self, group: str, topic: str, wish: ParkedWish
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield matching keys by queue in small lists; other tasks run in between."""
        place, _, text = wish.after.partition("@")
        for parking in sorted(self._owned(group, topic), key=lambda each: each.place):
            if parking.place < place:
                continue
            keys = sorted(parking.keys())
            if parking.place == place:
                keys = keys[bisect_right(keys, KeyVerbs(self._context, parking).named(text)) :]
            for some in slices(keys):
                rows = [parking.view(key) for key in some if key in parking.pipeline.parked]
                if matching := [row for row in rows if wish.reason in row["reason"]]:
                    yield matching
                await asyncio.sleep(0)

    async def act(
        self, verb: KeyVerb, group: str, topic: str, asked: KeyBody, *, by: str
    ) -> dict[str, Any]:
        """Run *verb* in one queue and return the key's new state.

        Raises OwnedElsewhere if other proxies own queues that may have the key, another
        OrderlaneError if the verb does not apply.
        """
        owned = self._verbs(group, topic)
        able = [
            (each, key)
            for each in owned
            if asked.place in (None, each.pipeline.place)
            and verb.may(each, key := each.named(asked.key))
        ]
        if not able:
            await self._refuse(verb, group, topic, asked, owned)
        verbs, key = able[0]
        if verb.reach is Reach.ONE and len(able) > 1:
            places = ", ".join(each.pipeline.place for each, _ in able)
            raise WrongState(
                f"key {asked.key!r} has messages in several queues ({places}): name one of them"
            )
        if not asked.only_looks:
            await self._do(verb, group, asked, verbs, key, by=by)
        return verbs.row(key)

    async def redrive_all(
        self,
        group: str,
        topic: str,
        *,
        by: str,
        reason: str,
        queue: str | None = None,
        rate: float = 0.0,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Redrive all parked keys of the owned queues (or of one *queue*) with one audit record.

        Keys that are being redriven or not ready are left alone. Returns the keys, the number of
        their copies, and the addresses of proxies that own other queues. Raises OrderlaneError.
        """
        owned = [each for each in self._owned(group, topic) if queue in (None, each.place)]
        why = f"this proxy does not own {queue or 'a queue'} of {topic!r} for {group!r}"
        others, _ = await self._others(Group(group), [Topic(topic)], why)
        if not owned:
            if others:
                raise _elsewhere(why, others)
            raise OrderlaneError(f"{why}, and no other proxy does")
        ready = [_ready_to_redrive(each) for each in owned]
        if not dry_run:
            before = [{**each, "keys": len(each["keys"]), "state": "parked"} for each in ready]
            after = [{**each, "state": "redriven", "rate": rate} for each in before]
            change = Change(by, "key redrive", group, reason, topic, "", before, after)
            async with self._context.audit.change(change) as entry:
                for each in owned:
                    each.redrive_all(by=by, audit=entry.id, rate=rate)
        return {
            "group": group,
            "topic": topic,
            "queues": ready,
            "owners": sorted({last.own.http for _, last in others if last.own.http}),
        }

    # ---- one queue ------------------------------------------------------------------------------

    async def _do(
        self, verb: KeyVerb, group: str, asked: KeyBody, at: KeyVerbs, key: bytes, *, by: str
    ) -> None:
        before = at.view(key)
        change = Change(
            by,
            f"key {verb.name}",
            group,
            asked.reason,
            before.topic,
            known_as(asked.key),
            before.row(),
            {"queue": before.queue, **verb.after(asked, before.offset)},
        )
        async with self._context.audit.change(change) as entry:
            act = Act(by, asked.reason, entry.id)
            await verb.effect(at, key, Wish(asked, act, before.offset))

    async def _refuse(
        self, verb: KeyVerb, group: str, topic: str, asked: KeyBody, owned: Sequence[KeyVerbs]
    ) -> None:
        why = _not_able(verb, group, topic, asked.key, owned)
        if asked.place is not None:
            why = f"{why}: queue {asked.place} was requested"
        others, _ = await self._others(Group(group), [Topic(topic)], why)
        others = [each for each in others if _lists(each[1], asked.key)] or others
        if not others:
            raise OrderlaneError(
                f"{why}, and no other proxy owns a queue: during a hand-over, retry in a moment"
            )
        raise _elsewhere(why, others)

    # ---- all queues -----------------------------------------------------------------------------

    async def everywhere(
        self,
        verb: KeyVerb,
        group: str,
        topic: str | None,
        text: str | None,
        asked: ChangeBody,
        *,
        by: str,
    ) -> dict[str, Any]:
        """Run *verb* on the key *text* in all owned queues of *topic* (None: of the group).

        Without *text* it applies to whole queues. Returns once it is recorded, with the owners of
        other queues. Raises OrderlaneError.
        """
        ownership = self._ownership(group, topic)
        topics = [Topic(topic)] if topic is not None else ownership.topics
        owned = [KeyVerbs(self._context, each) for each in ownership.parkings(topic)]
        why = f"this proxy owns no queue of {', '.join(topics)} for {group!r}"
        others, free = await self._others(Group(group), topics, why)
        able = [each for each in owned if verb.may(each, _named_at(each, text))]
        if owned and not able:
            why = _not_able(verb, group, ", ".join(topics), text or "", owned)
        if not able:
            if others:
                raise _elsewhere(why, others)
            if owned:
                raise OrderlaneError(f"{why}, and no other proxy owns a queue")
            raise OrderlaneError(
                f"{why}, and no other proxy does: queues get owners once clients connect"
            )
        after = verb.after(asked, None)
        change = Change(
            by,
            f"{'group' if text is None else 'key'} {verb.name}",
            group,
            asked.reason,
            topic or "",
            known_as(text or ""),
            [_state_of(verb, each, text) for each in able],
            [{"queue": each.pipeline.place, **after} for each in able],
        )
        async with self._context.audit.change(change) as entry:
            wish = Wish(asked, Act(by, asked.reason, entry.id))
            failed = await _in_all(able, verb, text, wish)
            if failed:
                entry.ended_as([_state_of(verb, each, text) for each in able])
        if failed:
            raise failed[0]
        return {
            "group": group,
            "topic": topic,
            "key": text,
            **after,
            "queues": [f"{each.pipeline.topic}/{each.pipeline.place}" for each in able],
            "owners": sorted({last.own.http for _, last in others if last.own.http}),
            "unowned": [f"{queue.topic}/{queue.qid}" for queue in free],
            "unaddressed": [
                f"{queue.topic}/{queue.qid}" for queue, last in others if not last.own.http
            ],
        }

    # ---- inside ---------------------------------------------------------------------------------

    async def _others(
        self, group: Group, topics: Sequence[Topic], why: str
    ) -> tuple[list[tuple[QueueName, LastOwner]], list[QueueName]]:
        """Return the queues of *topics* owned by other proxies, and those without an owner.

        Ownership records decide. Raises Unavailable if the brokers do not answer.
        """
        context = self._context
        ours = {each.pipeline.queue for each in self._ownerships[group].parkings()}
        try:
            queues = [
                each
                for topic in topics
                for each in await context.client.queues(topic)
                if each not in ours
            ]
            found = await asyncio.gather(*(context.log.owner(group, each) for each in queues))
        except RemotingError as error:
            raise Unavailable(
                f"{why}, and the owners of the others cannot be read: {error}"
            ) from None
        others, free = [], []
        for queue, last in zip(queues, found, strict=True):
            if last is None or last.clean or last.own.owner == context.client.client_id:
                free.append(queue)
            else:
                others.append((queue, last))
        return others, free

    def _verbs(self, group: str, topic: str) -> list[KeyVerbs]:
        return [KeyVerbs(self._context, each) for each in self._owned(group, topic)]

    def _owned(self, group: str, topic: str) -> Iterator[Parking]:
        return self._ownership(group, topic).parkings(topic)

    def _ownership(self, group: str, topic: str | None) -> GroupOwnership:
        ownership = self._ownerships.get(Group(group))
        if ownership is None or not (topic is None or ownership.consumes(topic)):
            with_topic = "" if topic is None else f" with a topic {topic!r}"
            raise UnknownName(f"this proxy has no group {group!r}{with_topic}")
        return ownership


async def _in_all(
    owned: Sequence[KeyVerbs], verb: KeyVerb, text: str | None, wish: Wish
) -> list[OrderlaneError]:
    """Run *verb* in all queues; return the errors of those that failed."""
    done = await asyncio.gather(
        *(verb.effect(each, _named_at(each, text), wish) for each in owned), return_exceptions=True
    )
    failed = []
    for each in done:
        if isinstance(each, OrderlaneError):
            failed.append(each)
        elif each is not None:
            raise each
    return failed


def _not_able(verb: KeyVerb, group: str, topic: str, key: str, owned: Sequence[KeyVerbs]) -> str:
    places = ", ".join(each.pipeline.place for each in owned) or "none"
    return (
        f"{verb.refusal.format(key=key)} in the queues of {topic!r} that this proxy owns for"
        f" {group!r} ({places})"
    )


def _named_at(at: KeyVerbs, text: str | None) -> bytes | None:
    return None if text is None else at.named(text)


def _ready_to_redrive(parking: Parking) -> dict[str, Any]:
    keys, twin = parking.may_redrive(), parking.pipeline.twin
    copies = 0 if twin is None else sum(map(twin.jobs.by_key.backlog, keys))
    return {"queue": parking.place, "keys": [*map(key_text, keys)], "copies": copies}


def _state_of(verb: KeyVerb, at: KeyVerbs, text: str | None) -> dict[str, Any]:
    state = {} if verb.before is None else verb.before(at, _named_at(at, text))
    return {"queue": at.pipeline.place, **state}


def _lists(last: LastOwner, key: str) -> bool:
    parked = () if last.snapshot is None else last.snapshot.parked
    return any(key_text(each) == key for each in parked)


def _elsewhere(why: str, others: Sequence[tuple[QueueName, LastOwner]]) -> OwnedElsewhere:
    owners = {last.own.owner: last.own.http for _, last in others}
    return OwnedElsewhere(
        f"{why}: ask {'; or '.join(_named(owner, others) for owner in owners)}",
        addresses=tuple(http for http in owners.values() if http),
    )


def _named(owner: str, others: Sequence[tuple[QueueName, LastOwner]]) -> str:
    """Return the name, address and queues of the proxy *owner*."""
    queues = ", ".join(queue.qid for queue, last in others if last.own.owner == owner)
    http = next(last.own.http for _, last in others if last.own.owner == owner)
    return f"{owner} ({f'HTTP {http}' if http else 'address unknown'}), which owns {queues}"
