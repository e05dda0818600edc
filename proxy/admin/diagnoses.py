"""Diagnoses of groups in the admin API and on the console: the findings of ``orderlane doctor``.

A proxy diagnoses its own view of a group and what the brokers have of it; other proxies, which only
``orderlane doctor`` asks, count as proxies with clients. Diagnoses are made only while somebody
asks, kept for all who ask, and made one after the other with long pauses, so that looking at the
console stays cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog

from broker_core.clock import now_ns, wall_ms
from broker_core.names import Group
from broker_core.tasks import cancel_and_wait, spawn
from proxy.admin.operations import LOOKS, Call, Operation, get
from proxy.admin.process import process_view
from proxy.core.limits.refusals import RefusalBook
from proxy.diagnosis.diagnose import Diagnosis, diagnosis
from proxy.diagnosis.facts import (
    Facts,
    HeldGroup,
    KeyLists,
    ProxyFacts,
    group_of,
    jump_of,
    refused_of,
)
from proxy.errors import OrderlaneError
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.operator.broker_facts import BrokerFacts
from proxy.operator.key_board import KeyBoard
from proxy.operator.key_desk import KeyDesk, ParkedWish
from proxy.operator.request_models import Answer
from proxy.upstream.context import UpstreamContext

#: A diagnosis is made again when it is older than this.
_FRESH_S = 10.0
#: Pause after each diagnosis in the background, as a multiple of the time that it took; and if most
#: of that was a wait for brokers that do not answer, so that each group has its turn even then.
_PAUSE, _PAUSE_AFTER_WAIT = 99, 1
#: Keys of each kind that a diagnosis looks at, per topic.
_KEYS, _PARKED, _TOP = 1_000, 10_000, 20

_log = structlog.get_logger("admin")


class FindingView(Answer):
    """One problem: its cause, its place, and sentences about it; ``what`` is the first one.

    ``command`` cures it, ``look`` shows more. ``since_ms``: its start, milliseconds since 1970;
    ``messages``: waiting messages, 0 if unknown.
    """

    cause: str
    where: str
    what: str
    cure: str
    command: str
    look: str
    since_ms: int | None
    messages: int
    sentence: str


class DiagnosisView(Answer):
    """The diagnosis of a group at ``at_ms`` (since 1970), from this proxy and its brokers.

    ``sentence``: the first finding, or the state of a healthy group.
    """

    group: str
    at_ms: int
    healthy: bool
    sentence: str
    findings: list[FindingView]


class HealthView(Answer):
    """The first sentence of a group's diagnosis; all but ``group`` null if there is none yet."""

    group: str
    at_ms: int | None
    healthy: bool | None
    cause: str | None
    sentence: str | None


@dataclass(frozen=True, slots=True)
class _Made:
    """A diagnosis, and when it was made."""

    found: Diagnosis
    at_ms: int
    made_ns: int

    @property
    def is_fresh(self) -> bool:
        return now_ns() - self.made_ns < _FRESH_S * 1e9


class Diagnoses:
    """The latest diagnosis of each group, one object per process. *view* returns the group of
    ``GET /api/groups``, *is_stored* whether its settings are stored at the nameservers.
    """

    def __init__(
        self,
        context: UpstreamContext,
        lanes: Lanes,
        view: Callable[[GroupLane], Awaitable[dict[str, Any]]],
        is_stored: Callable[[str], bool],
        board: KeyBoard,
        desk: KeyDesk,
        refusals: RefusalBook,
    ) -> None:
        self._context = context
        self._lanes = lanes
        self._view = view
        self._is_stored = is_stored
        self._board = board
        self._desk = desk
        self._refusals = refusals
        self._made: dict[Group, _Made] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    def known(self) -> list[tuple[Group, _Made | None]]:
        """Return the latest diagnosis of each group, and begin to make stale ones again."""
        names = {lane.name: None for lane in self._groups()}
        self._made = {name: made for name, made in self._made.items() if name in names}
        stale = [name for name in names if not self._is_fresh(name)]
        if stale and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = spawn(self._refresh(stale), name="diagnoses")
        return [(name, self._made.get(name)) for name in sorted(names)]

    async def close(self) -> None:
        """Make no more diagnoses in the background."""
        await cancel_and_wait(self._refreshing)

    async def of(self, name: str) -> _Made:
        """Return the diagnosis of a group, at most 10 s old. Raises UnknownName."""
        lane = self._lanes.named(name)
        async with self._turn:
            if not self._is_fresh(lane.name):
                await self._diagnose(lane)
            return self._made[lane.name]

    def _groups(self) -> Iterable[GroupLane]:
        return (lane for lane in self._lanes if not lane.is_broadcast)

    def _is_fresh(self, name: Group) -> bool:
        made = self._made.get(name)
        return made is not None and made.is_fresh

    async def _refresh(self, names: Iterable[Group]) -> None:
        for name in names:
            lane = self._lanes.find(name)
            if lane is None:
                continue
            began_ns, waited = now_ns(), False
            try:
                async with self._turn:
                    waited = await self._diagnose(lane)
            except OrderlaneError:
                continue  # the group has gone meanwhile
            except Exception:  # a bug must not end the others, nor leave an old sentence
                _log.exception("a diagnosis failed", group=name)
                self._made.pop(name, None)
            pause = _PAUSE_AFTER_WAIT if waited else _PAUSE
            await asyncio.sleep(pause * (now_ns() - began_ns) / 1e9)

    async def _diagnose(self, lane: GroupLane) -> bool:
        """Diagnose a group; return whether a broker did not answer."""
        facts = await self._facts(lane)
        self._made[lane.name] = _Made(diagnosis(facts), wall_ms(), now_ns())
        return bool(facts.brokers_away)

    async def _facts(self, lane: GroupLane) -> Facts:
        context = self._context
        group = replace(group_of(await self._view(lane)), stored=self._is_stored(lane.name))
        brokers = BrokerFacts(
            context.client,
            lane.name,
            from_latest=group.start_from != "earliest",
            skipped=frozenset((queue.topic, queue.queue) for queue in group.queues),
            fresh=False,
        )
        topics = [topic.name for topic in lane.settings.topics]
        await brokers.look(topics)
        await brokers.check(queue.queue.rpartition("_")[0] for queue in group.queues)
        await brokers.look_at_dead_letters()
        others = sorted(brokers.addresses - {context.http})
        return Facts(
            group=lane.name,
            at_ms=wall_ms(),
            nameserver=",".join(context.settings.nameserver),
            nameserver_trouble=brokers.trouble,
            not_registered=brokers.not_registered,
            brokers_away=dict(sorted(brokers.away.items())),
            brokers_refusing=dict(sorted(brokers.refusing.items())),
            topics_missing=tuple(sorted(brokers.missing)),
            not_readable=brokers.not_readable,
            dead_letters=brokers.dead_letters,
            dead_letters_known=brokers.dead_letters_known,
            queues=tuple(brokers.queues),
            proxies=(
                await self._this_proxy(group, lane.name, topics),
                *(ProxyFacts(at, group=HeldGroup(clients_seen_s=0.0)) for at in others),
            ),
        )

    async def _this_proxy(self, group: HeldGroup, name: Group, topics: Iterable[str]) -> ProxyFacts:
        process, board = process_view(self._context), self._board
        keys = KeyLists()
        for topic in topics if any(queue.unfinished for queue in group.queues) else ():
            keys.add("blocked", topic, await board.blocked(name, topic, _KEYS), limit=_KEYS)
            paused = await board.paused(name, topic, _KEYS)
            keys.add("paused", topic, paused.rows, limit=_KEYS)
            keys.add("top", topic, await board.top(name, topic, _TOP), limit=_TOP)
            parked = await self._desk.parked(name, topic, ParkedWish(limit=_PARKED))
            keys.add("parked", topic, parked.rows, limit=_PARKED)
        return ProxyFacts(
            http=self._context.http,
            proxy=process["proxy"],
            thrift=process["thrift"],
            away=process["away"],
            jumps=tuple(map(jump_of, process["clock_jumps"])),
            memory_bytes=process["memory_bytes"],
            memory_limit_bytes=process["memory_limit_bytes"],
            group=group,
            refused=tuple(
                refused_of(asdict(each)) for each in self._refusals if each.port == "thrift"
            ),
            **keys.facts(),
        )


class DiagnosisSurface:
    """``GET /api/diagnoses`` and ``GET /api/groups/GROUP/diagnosis``."""

    def __init__(self, diagnoses: Diagnoses) -> None:
        self._diagnoses = diagnoses

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                "/api/diagnoses",
                "Show the first sentence of each group's latest diagnosis. Stale ones are made"
                " again in the background.",
                self._all,
                answer=list[HealthView],
            ),
            get(
                "/api/groups/{group}/diagnosis",
                "Diagnose a group: why it makes no progress, as far as this proxy and its brokers"
                " know.",
                self._one,
                answer=DiagnosisView,
                errors=LOOKS,
            ),
        ]

    async def _all(self, _call: Call) -> list[dict[str, Any]]:
        return [_health(group, made) for group, made in self._diagnoses.known()]

    async def _one(self, call: Call) -> dict[str, Any]:
        made = await self._diagnoses.of(call.path["group"])
        return {
            "group": made.found.group,
            "at_ms": made.at_ms,
            "healthy": not made.found.findings,
            "sentence": made.found.sentence,
            "findings": [each.row() for each in made.found.findings],
        }


def _health(group: Group, made: _Made | None) -> dict[str, Any]:
    findings = () if made is None else made.found.findings
    return {
        "group": group,
        "at_ms": None if made is None else made.at_ms,
        "healthy": None if made is None else not findings,
        "cause": findings[0].cause.value if findings else None,
        "sentence": None if made is None else made.found.sentence,
    }
