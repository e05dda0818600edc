"""Runs key verbs in the queues owned by this proxy.

Most verbs apply to one queue: the named one, or the first that has the key. Pause and resume apply
to all queues of the topic or group, even those without messages of the key. Queues without an owner
are taken over for a verb, and released a while later if no client comes.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from proxy.core.access.audit_record import Change
from proxy.core.broadcast.member_group import member_group
from proxy.core.keys.order_key import key_text, known_as
from proxy.core.pipeline.key_views import slices
from proxy.errors import OrderlaneError, OwnedElsewhere, Unavailable, UnknownName, WrongState
from proxy.operator.key_models import KeyBody
from proxy.operator.key_table import KeyVerb, Reach, Wish
from proxy.operator.key_verbs import Act, KeyVerbs
from proxy.operator.recorded_keys import RecordedKeys, RecordedQueues, without
from proxy.operator.request_models import ChangeBody, Listed, Streamed
from proxy.upstream.broker_questions import failures
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.owner_book import OwnerBook, OwnerRow
from proxy.upstream.parking.parked_keys import Parking


@dataclass(frozen=True, slots=True)
class ParkedWish:
    """Selects parked keys: at most *limit* with *reason* in their reason, behind *after*, the queue
    and key of a row, such as ``broker-a_0@customer-17``.
    """

    limit: int = 10_000
    reason: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class _ParkedIn:
    """The parked keys of a queue: ``keys`` in order, the key shown as a text, and the row of one of
    them, None if it is not parked any more.
    """

    place: str
    keys: Sequence[bytes]
    named: Callable[[str], bytes]
    row: Callable[[bytes], dict[str, Any] | None]


class KeyDesk:
    """Finds the queue of a key. If another proxy owns it, the error names that proxy."""

    def __init__(
        self,
        context: UpstreamContext,
        ownerships: Mapping[Group, GroupOwnership],
        book: OwnerBook,
    ) -> None:
        self._context = context
        self._ownerships = ownerships
        self._book = book
        self._recorded = RecordedKeys(context, book)

    async def parked(self, group: str, topic: str, wish: ParkedWish) -> Listed:
        """Return parked keys by queue, also of queues without an owner. Raises UnknownName for an
        unknown group or topic.
        """
        found: list[dict[str, Any]] = []
        recorded = await self._without_owner(group, topic)
        async for rows in self._parked(group, topic, wish, recorded):
            found += rows
            if len(found) >= wish.limit:
                break
        return Listed(found[: wish.limit], recorded.unanswered)

    def export_parked(self, group: str, topic: str, wish: ParkedWish) -> Streamed:
        """Return all parked keys that match as lines of JSON. The pieces raise UnknownName;
        Unavailable, at the end, if some are unknown, because a broker does not answer.
        """
        unanswered: dict[str, str] = {}
        return Streamed(self._exported(group, topic, wish, unanswered), unanswered)

    async def _exported(
        self, group: str, topic: str, wish: ParkedWish, unanswered: dict[str, str]
    ) -> AsyncIterator[bytes]:
        recorded = await self._without_owner(group, topic)
        unanswered |= recorded.unanswered
        async for rows in self._parked(group, topic, wish, recorded):
            yield b"".join(orjson.dumps(row) + b"\n" for row in rows)
        if unanswered:
            raise Unavailable(f"keys are missing: {failures(unanswered)}")

    async def _without_owner(self, group: str, topic: str) -> RecordedQueues:
        owned = [each.pipeline.queue for each in self._owned(group, topic)]
        return await self._recorded.queues(Group(group), Topic(topic), but=owned)

    async def _parked(
        self, group: str, topic: str, wish: ParkedWish, recorded: RecordedQueues
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield matching keys by queue in small lists; other tasks run in between."""
        place, _, text = wish.after.partition("@")
        places = self._parked_in(group, topic, recorded)
        for parked in sorted(places, key=lambda each: each.place):
            if parked.place < place:
                continue
            keys = parked.keys
            if parked.place == place:
                keys = keys[bisect_right(keys, parked.named(text)) :]
            for some in slices(keys):
                rows = filter(None, map(parked.row, some))
                if matching := [row for row in rows if wish.reason in row["reason"]]:
                    yield matching
                await asyncio.sleep(0)

    def _parked_in(self, group: str, topic: str, recorded: RecordedQueues) -> list[_ParkedIn]:
        owned = list(self._owned(group, topic))
        ours = {each.pipeline.queue for each in owned}  # one may have been taken over meanwhile
        free = [each for each in recorded.queues if each.queue not in ours]
        return [
            *(
                _ParkedIn(
                    each.place,
                    sorted(each.keys()),
                    KeyVerbs(self._context, each).named,
                    partial(_row_if_parked, each),
                )
                for each in owned
            ),
            *(
                _ParkedIn(each.place, sorted(each.last.parked), each.named, each.parked)
                for each in free
            ),
        ]

    async def act(
        self, verb: KeyVerb, group: str, topic: str, asked: KeyBody, *, by: str
    ) -> dict[str, Any]:
        """Run *verb* in one queue and return the key's new state.

        Raises OwnedElsewhere if other proxies own queues that may have the key, another
        OrderlaneError if the verb does not apply.
        """
        await self._check_known(group, topic)
        self._check_has_queues(group)
        able = self._able(verb, group, topic, asked)
        if not able and await self._take_unowned(group, topic, asked.place):
            able = self._able(verb, group, topic, asked)
        if not able:
            await self._refuse(verb, group, topic, asked, self._verbs(group, topic))
        verbs, key = able[0]
        if verb.reach is Reach.ONE and len(able) > 1:
            places = ", ".join(each.pipeline.place for each, _ in able)
            raise WrongState(
                f"key {asked.key!r} has messages in several queues ({places}): name one of them"
            )
        if asked.only_looks:
            return verbs.row(key)
        return await self._do(verb, group, asked, verbs, key, by=by)

    def _able(
        self, verb: KeyVerb, group: str, topic: str, asked: KeyBody
    ) -> list[tuple[KeyVerbs, bytes]]:
        """Return the owned queues in which *verb* applies, with the key as known there."""
        return [
            (each, key)
            for each in self._verbs(group, topic)
            if asked.place in (None, each.pipeline.place)
            and verb.may(each, key := each.named(asked.key))
        ]

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
        their copies, the other queues, and the addresses of their owners. Raises OrderlaneError, as
        while one of the queues is being handed over.
        """
        await self._check_known(group, topic)
        self._check_has_queues(group)
        await self._take_unowned(group, topic, queue)
        owned = [each for each in self._owned(group, topic) if queue in (None, each.place)]
        why = f"this proxy does not own {queue or 'a queue'} of {topic!r} for {group!r}"
        others, free = (
            [row for row in rows if queue in (None, row.queue.qid)]
            for rows in await self._others(Group(group), [Topic(topic)], why)
        )
        if not owned:
            if others:
                raise _elsewhere(why, others)
            raise self._not_taken(f"{why}, and no other proxy does")
        verbs = [KeyVerbs(self._context, each) for each in owned]
        _check_all_may_act(verbs)
        ready = [_ready_to_redrive(each, each.may_redrive()) for each in owned]
        if not dry_run:
            change = Change(
                by,
                "key redrive",
                group,
                reason,
                topic,
                "",
                [_in_audit(each, state="parked") for each in ready],
                [_in_audit(each, state="redriven", rate=rate) for each in ready],
            )
            async with self._context.audit.change(change) as entry:
                _check_all_may_act(verbs)  # before the first redrive: a refusal changes nothing
                ready = [_redrive_all(each, by=by, audit=entry.id, rate=rate) for each in owned]
                # Other keys may be ready than before the audit record was stored.
                entry.ended_as([_in_audit(each, state="redriven", rate=rate) for each in ready])
                for at in verbs:
                    await at.record("being redriven")
        return {
            "group": group,
            "topic": topic,
            "queues": ready,
            **_not_here(others, free),
        }

    # ---- one queue ------------------------------------------------------------------------------

    async def _do(
        self, verb: KeyVerb, group: str, asked: KeyBody, at: KeyVerbs, key: bytes, *, by: str
    ) -> dict[str, Any]:
        """Run *verb*; return the key's state right after it, once it is recorded."""
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
            row = at.row(key)
            if verb.recorded:
                await at.record(verb.recorded)
        return row

    async def _refuse(
        self, verb: KeyVerb, group: str, topic: str, asked: KeyBody, owned: Sequence[KeyVerbs]
    ) -> None:
        why = _not_able(verb, group, topic, asked.key, owned)
        if asked.place is not None:
            why = f"{why}: queue {asked.place} was requested"
        others, _ = await self._others(Group(group), [Topic(topic)], why)
        others = [each for each in others if _lists(each, asked.key)] or others
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
        await self._check_known(group, topic)
        ownership = self._ownership(group, topic)
        self._check_has_queues(group)
        topics = [Topic(topic)] if topic is not None else ownership.topics
        why = f"this proxy owns no queue of {', '.join(topics)} for {group!r}"
        others, free = await self._others(Group(group), topics, why)
        if free:
            await ownership.take_for_operator([row.queue for row in free])
            others, free = await self._others(Group(group), topics, why)
        if topic is None and ownership.auto_created:
            others += await self._of_other_topics(Group(group), topics)
        owned = [KeyVerbs(self._context, each) for each in ownership.parkings(topic)]
        able = [each for each in owned if verb.may(each, _named_at(each, text))]
        if owned and not able:
            why = _not_able(verb, group, ", ".join(topics), text or "", owned)
        if not able:
            if others:
                raise _elsewhere(why, others)
            if owned:
                raise OrderlaneError(f"{why}, and no other proxy owns a queue")
            raise self._not_taken(f"{why}, and no other proxy does")
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
            # Queues taken over meanwhile began with the pauses of the others.
            known = {each.pipeline for each in owned}
            news = [KeyVerbs(self._context, each) for each in ownership.parkings(topic)]
            news = [each for each in news if each.pipeline not in known]
            able += [each for each in news if verb.may(each, _named_at(each, text))]
            wish = Wish(asked, Act(by, asked.reason, entry.id))
            failed = await _in_all(able, verb, text, wish)
            if failed or news:
                entry.ended_as([_state_of(verb, each, text) for each in able])
        if failed:
            raise failed[0]
        return {
            "group": group,
            "topic": topic,
            "key": text,
            **after,
            "queues": [f"{each.pipeline.topic}/{each.pipeline.place}" for each in able],
            **_not_here(others, free),
        }

    # ---- inside ---------------------------------------------------------------------------------

    async def _others(
        self, group: Group, topics: Sequence[Topic], why: str
    ) -> tuple[list[OwnerRow], list[OwnerRow]]:
        """Return the queues of *topics* owned by other proxies, and those without an owner.

        Ownership records decide. Raises UnknownName if none of *topics* exists, Unavailable if the
        brokers do not answer, WrongState if this proxy has lost a queue meanwhile, which would be
        in neither list.
        """
        ours = self._ours(group, topics)
        try:
            known = await self._book.queues_of(group, topics)
            rows = await self._book.rows(group, [each for each in known if each not in ours])
        except RemotingError as error:
            raise Unavailable(
                f"{why}, and the owners of the others cannot be read: {error}"
            ) from None
        if lost := ours - self._ours(group, topics):
            places = ", ".join(map(str, sorted(lost)))
            raise WrongState(f"the owner of {places} changes: retry in a moment", passing=True)
        return without(rows, self._context.client.client_id)

    async def _check_known(self, group: str, topic: str | None) -> None:
        """Raise OwnedElsewhere if only other proxies know the group or its *topic*, as when clients
        created it there; UnknownName if no proxy does.
        """
        try:
            self._ownership(group, topic)
        except UnknownName as unknown:
            rows: list[OwnerRow] = []
            with suppress(RemotingError):
                rows = await self._book.elsewhere(Group(group), but=())
            if rows := [each for each in rows if topic in (None, each.queue.topic)]:
                raise _elsewhere(str(unknown), rows) from None
            raise

    async def _of_other_topics(self, group: Group, topics: Sequence[Topic]) -> list[OwnerRow]:
        """Return the queues of other proxies of a group that clients created, beside those of
        *topics*, for which clients asked here. Raises Unavailable.
        """
        try:
            return await self._book.elsewhere(group, but=topics)
        except RemotingError as error:
            raise Unavailable(
                f"the topics of group {group!r} at other proxies cannot be read: {error}"
            ) from None

    def _ours(self, group: Group, topics: Sequence[Topic]) -> set[QueueName]:
        owned = (each.pipeline.queue for each in self._ownerships[group].parkings())
        return {queue for queue in owned if queue.topic in topics}

    async def _take_unowned(self, group: str, topic: str, place: str | None) -> bool:
        """Take over the queues of *topic* without an owner, or only the one at *place*; return
        whether there are any. Raises Unavailable.
        """
        why = f"queues of {topic!r} are not owned by this proxy"
        _, free = await self._others(Group(group), [Topic(topic)], why)
        wanted = [row.queue for row in free if place in (None, row.queue.qid)]
        if wanted:
            await self._ownership(group, topic).take_for_operator(wanted)
        return bool(wanted)

    def _not_taken(self, why: str) -> OrderlaneError:
        if self._context.away:
            return WrongState(
                f"{why}; it takes none over, because it is drained: {self._context.away}"
            )
        return WrongState(
            f"{why}; no take-over in time: during a hand-over, retry in a moment", passing=True
        )

    def _check_has_queues(self, group: str) -> None:
        """Raise WrongState for a broadcast group: each of its clients has queues of its own."""
        ownership = self._ownerships.get(Group(group))
        if ownership is not None and ownership.is_broadcast:
            raise WrongState(
                f"group {group!r} is a broadcast group, whose clients have their own pauses and"
                f" parked keys: name the group of a client, '{member_group(group, 'CLIENT')}'"
            )

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


def _check_all_may_act(owned: Sequence[KeyVerbs]) -> None:
    for each in owned:
        each.check_may_act()


def _redrive_all(parking: Parking, *, by: str, audit: str, rate: float) -> dict[str, Any]:
    """Redrive all parked keys that are ready; return them as ``_ready_to_redrive`` does."""
    ready = _ready_to_redrive(parking, parking.may_redrive())
    begun = parking.redrive_all(by=by, audit=audit, rate=rate)
    return {**ready, "keys": [*map(key_text, begun)]}


def _ready_to_redrive(parking: Parking, keys: Sequence[bytes]) -> dict[str, Any]:
    twin = parking.pipeline.twin
    copies = 0 if twin is None else sum(map(twin.jobs.by_key.backlog, keys))
    return {"queue": parking.place, "keys": [*map(key_text, keys)], "copies": copies}


def _in_audit(ready: Mapping[str, Any], **state: Any) -> dict[str, Any]:
    """Return a queue of a redrive for the audit, with the number of its keys."""
    return {**ready, "keys": len(ready["keys"]), **state}


def _state_of(verb: KeyVerb, at: KeyVerbs, text: str | None) -> dict[str, Any]:
    state = {} if verb.before is None else verb.before(at, _named_at(at, text))
    return {"queue": at.pipeline.place, **state}


def _row_if_parked(parking: Parking, key: bytes) -> dict[str, Any] | None:
    return parking.view(key) if key in parking.pipeline.parked else None


def _lists(row: OwnerRow, key: str) -> bool:
    snapshot, shown = None if row.last is None else row.last.snapshot, known_as(key)
    return snapshot is not None and any(key_text(each) == shown for each in snapshot.parked)


def _shown(row: OwnerRow) -> str:
    return f"{row.queue.topic}/{row.queue.qid}"


def _not_here(others: Sequence[OwnerRow], free: Sequence[OwnerRow]) -> dict[str, Any]:
    """Return the queues that a verb of this proxy left out, and the addresses of their owners."""
    http = {_shown(row): "" if row.last is None else row.last.own.http for row in others}
    return {
        "owners": sorted({*http.values()} - {""}),
        "elsewhere": [*http],
        "unowned": [_shown(row) for row in free],
        "unaddressed": [queue for queue, address in http.items() if not address],
    }


def _elsewhere(why: str, others: Sequence[OwnerRow]) -> OwnedElsewhere:
    owners = {row.last.own.owner: row.last.own.http for row in others if row.last is not None}
    return OwnedElsewhere(
        f"{why}: ask {'; or '.join(_named(owner, owners[owner], others) for owner in owners)}",
        addresses=tuple(http for http in owners.values() if http),
    )


def _named(owner: str, http: str, others: Sequence[OwnerRow]) -> str:
    """Return the name, address and queues of the proxy *owner*."""
    queues = ", ".join(
        row.queue.qid for row in others if row.last is not None and row.last.own.owner == owner
    )
    return f"{owner} ({f'HTTP {http}' if http else 'address unknown'}), which owns {queues}"
