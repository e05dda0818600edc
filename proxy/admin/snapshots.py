"""Converts statistics to plain values for the admin API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any, Protocol

import structlog
from pydantic import BaseModel, ConfigDict, RootModel

from broker_core.clock import now_ns, wall_ms
from broker_core.names import Group, Topic
from broker_core.tasks import Turns
from proxy.core.group.group_state import GroupPicture, GroupState, Handled, Kind, state_of
from proxy.core.group.known_queue import KnownQueue, figures_of, known_here
from proxy.core.pipeline.effects import PipelineStatistics
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.counts import TopicCounts
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.operator.request_models import Answer

#: Queues looked at without a pause: less than a millisecond of the event loop.
_AT_ONCE = 32
#: Figures of a queue; all but a time of the monotonic clock of this process.
_SHOWN = tuple(
    each.name for each in fields(PipelineStatistics) if each.name not in ("queue", "committed_ns")
)
_shown = attrgetter(*_SHOWN)
_MS = 1_000_000

_noisy = NoisyLog(structlog.get_logger("admin"))


class FiguresView(Answer):
    """Figures over all queues of a group or topic that no other proxy owns; null: unknown.

    ``queues``: their number; ``unowned``: those without an owner; ``elsewhere``: queues of other
    proxies, which are in no figure; ``unknown``: queues without figures. ``parked`` counts copies
    in the parked topic, which are in no other count. ``oldest_ms``: store time of the oldest
    message that waits, ``at_ms``: when the oldest of the figures was true; both since 1970.
    """

    queues: int
    unowned: int
    elsewhere: int
    unknown: int
    at_ms: int | None
    lag: int | None
    unfinished: int | None
    blocked: int | None
    parked: int | None
    parked_keys: int | None
    paused_keys: int | None
    oldest_ms: int | None


class TopicView(Answer):
    """A topic of a group; without an order key it is unordered.

    ``rate_limited``: ready messages wait for ``max_rate``; ``wanted``: clients pull it here or did
    recently, or the proxy pushes it. Message counts since the proxy started: ``delivered``;
    ``filtered``, here or by the broker; ``filtered_in_a_row``, since the last delivery;
    ``expired``, whose lease expired, the last one ``expired_ago_s`` seconds ago (null if none);
    ``keyless_in_a_row``, without the order key since the last one that had it, treated by the
    policy ``missing_key``. ``handler_p50_s``: an upper bound of the median handling time since
    then, null if unknown.
    """

    name: str
    order_key: str | None
    max_rate: float | None
    rate_limited: bool
    wanted: bool
    delivered: int
    filtered: int
    filtered_in_a_row: int
    expired: int
    expired_ago_s: float | None
    missing_key: str
    keyless_in_a_row: int
    handler_p50_s: float | None
    figures: FiguresView


class OtherQueueView(Answer):
    """A queue that this proxy does not own, as brokers and ownership records show it.

    ``owned``: elsewhere, gone (its owner ended without a last record), free or unknown. ``source``
    of the figures: released (this proxy owned it until then), records, brokers (it never had an
    owner, or its records are deleted) or none. ``at_ms``: when they were true, since 1970;
    ``trouble``: why they are not newer. An unknown figure is null.
    """

    topic: str
    queue: str
    owned: str
    source: str
    at_ms: int | None
    owner: str | None
    http: str | None
    trouble: str
    ever_owned: bool | None
    end: int | None
    committed: int | None
    lag: int | None
    unfinished: int | None
    blocked: int | None
    parked: int | None
    parked_keys: int | None
    paused_keys: int | None
    paused_whole: bool
    attempts: int | None
    oldest_ms: int | None


class StateView(Answer):
    """The state of a group at this proxy in a word, its kind (ok, busy, idle, warn or bad), and the
    sentence that explains it.
    """

    word: str
    kind: str
    sentence: str


class QueueView(BaseModel):
    """The figures of an owned queue. ``sure``: the proxy trusts its lock; otherwise it delivers
    nothing. ``for_topic`` and ``name``: under these, operations address it; the ``name`` of a queue
    of parked messages ends with ``p``. ``parked_keys``: number of its parked keys.
    """

    model_config = ConfigDict(extra="allow")

    topic: str
    queue: str
    for_topic: str
    name: str
    epoch: int
    unfinished: int
    ready: int
    leased: int
    blocked: int
    committed: int
    end: int
    sure: bool


class PausedView(Answer):
    """The pause of a group: operator and reason."""

    since_ms: int
    by: str
    reason: str


class GroupView(Answer):
    """One group at this proxy.

    ``hand_out``: which ready messages go first, oldest or longest_chain; ``start_from``: where a
    group without committed offsets begins; ``mode``: clustering or broadcast; ``paused``: the pause
    of the whole group; ``deliveries``: topics with push delivery; ``refused``: queues for which its
    settings are too old; ``denied``: queues whose locks are held by others, with seconds since;
    ``clients_seen_s``: seconds since the last client, null if none. ``queues``: those that this
    proxy owns; ``others``: those that it does not. ``dead_letters``: those that were not redriven,
    counted at ``dead_letters_at_ms``, null if unknown.
    """

    state: StateView
    figures: FiguresView
    dead_letters: int | None
    dead_letters_at_ms: int | None

    max_rate: float | None
    hand_out: str
    start_from: str
    mode: str
    paused: PausedView | None
    deliveries: list[dict[str, Any]]
    topics: list[TopicView]
    taking_part: bool
    waiting_pulls: int
    bulk_readers: int
    refused: dict[str, str]
    denied: dict[str, float]
    clients_seen_s: float | None
    queues: list[QueueView]
    others: list[OtherQueueView]


class GroupsView(RootModel[dict[str, GroupView]]):
    """Groups by name."""


class Unowned(Protocol):
    """Knowledge of queues that this proxy does not own."""

    def of(self, lane: GroupLane) -> Sequence[KnownQueue]:
        """Return those of *lane*."""

    def missed(self, lane: GroupLane) -> frozenset[str]:
        """Return the topics of *lane* of which further queues may exist."""

    def dead_letters(self, group: Group) -> tuple[int | None, int | None]:
        """Return the dead letters that were not redriven, and when they were counted, in ms since
        1970.
        """


async def groups_view(
    lanes: Iterable[GroupLane],
    bulk_readers: Mapping[Group, int] | None = None,
    deliveries: Callable[[Group], list[dict[str, Any]]] | None = None,
    unowned: Unowned | None = None,
) -> dict[str, Any]:
    """Return every group with its topics, owned queues, *bulk_readers*, push *deliveries*, and what
    is known of its *unowned* queues.

    Other tasks work meanwhile, so groups are shown as they are at slightly different times. One
    whose figures cannot be read, because of a bug, is shown without any, and hides no other.
    """
    reading, turns = bulk_readers or {}, Turns(_AT_ONCE)
    found: dict[str, Any] = {}
    for lane in list(lanes):
        bug = _noisy.confined(f"view {lane.name}", "a group cannot be shown", group=lane.name)
        with bug:
            found[lane.name] = await _group_view(
                lane,
                [] if deliveries is None else deliveries(lane.name),
                turns,
                bulk_readers=reading.get(lane.name, 0),
                unowned=unowned,
            )
        if bug.failed:
            found[lane.name] = _unreadable_view(lane)
    return found


async def _group_view(
    lane: GroupLane,
    deliveries: list[dict[str, Any]],
    turns: Turns,
    *,
    bulk_readers: int,
    unowned: Unowned | None,
) -> dict[str, Any]:
    wall, now = wall_ms(), now_ns()
    others = () if unowned is None else unowned.of(lane)
    missed: frozenset[str] = frozenset() if unowned is None else unowned.missed(lane)
    dead_letters = (None, None) if unowned is None else unowned.dead_letters(lane.name)
    queues: list[dict[str, Any]] = []
    owned: list[tuple[QueuePipeline, PipelineStatistics]] = []
    known: list[KnownQueue] = []
    for pipeline in list(lane.buffer):
        await turns.step()
        if pipeline.closed:
            continue
        seen = pipeline.statistics()
        queues.append(_queue_view(pipeline, seen))
        if pipeline.origin is pipeline:
            at_ms = wall - pipeline.unconfirmed_ns(now) // _MS
            owned.append((pipeline, seen))
            known.append(known_here(pipeline, seen, wall_ms=at_ms))
    known += others
    pause = lane.buffer.paused_whole or next((each.pause for each in known if each.pause), None)
    topics = _topics(lane, known, missed)
    figures = figures_of(known, complete=not missed)
    picture = GroupPicture(
        figures=figures,
        owned=len(owned),
        waiting_pulls=lane.presence.waiting_pulls,
        bulk_readers=bulk_readers,
        joined=lane.presence.joined,
        rate_limited=any(topic["rate_limited"] for topic in topics),
        paused="" if pause is None else f"by {pause.by}: {pause.reason}",
        refused={str(queue): why for queue, (why, _) in lane.refused.items()},
        complete=not missed,
        silent=_silent([each for each, _ in owned], others, now),
        ever_owned=any(each.ever_owned is not False for each in known),
        dead_letters=dead_letters[0],
        broadcast=lane.is_broadcast,
        handled=Handled(
            sum(topic["delivered"] for topic in topics),
            sum(topic["filtered"] for topic in topics),
            any(each.committed for each in known),
        ),
        **_at_work([figures for _, figures in owned]),
    )
    return {
        "state": asdict(state_of(picture)),
        "figures": asdict(figures),
        "dead_letters": dead_letters[0],
        "dead_letters_at_ms": dead_letters[1],
        "max_rate": lane.settings.max_rate,
        "hand_out": lane.settings.hand_out,
        "start_from": str(lane.settings.start_from),
        "mode": lane.settings.mode,
        "paused": None if pause is None else asdict(pause),
        "topics": topics,
        "taking_part": lane.presence.joined,
        "waiting_pulls": lane.presence.waiting_pulls,
        "bulk_readers": bulk_readers,
        "deliveries": deliveries,
        "refused": {str(queue): why for queue, (why, _) in lane.refused.items()},
        "denied": {
            str(queue): (now_ns() - since_ns) / 1e9 for queue, since_ns in lane.denied.items()
        },
        "clients_seen_s": lane.presence.seen_ago_s,
        "queues": queues,
        "others": [each.row() for each in others],
    }


def _unreadable_view(lane: GroupLane) -> dict[str, Any]:
    """Return the view of a group of which only the settings are known."""
    settings, unknown = lane.settings, asdict(figures_of((), complete=False))
    sentence = "its figures cannot be read: see the proxy's log"
    return {
        "state": asdict(GroupState("error", Kind.BAD, sentence)),
        "figures": unknown,
        "dead_letters": None,
        "dead_letters_at_ms": None,
        "max_rate": settings.max_rate,
        "hand_out": settings.hand_out,
        "start_from": str(settings.start_from),
        "mode": settings.mode,
        "paused": None,
        "topics": [
            {
                "name": topic.name,
                "order_key": topic.order_key,
                "max_rate": topic.max_rate,
                "rate_limited": False,
                "wanted": False,
                "missing_key": topic.missing_key,
                **_passing(None),
                "figures": unknown,
            }
            for topic in settings.topics
        ],
        "taking_part": False,
        "waiting_pulls": 0,
        "bulk_readers": 0,
        "deliveries": [],
        "refused": {},
        "denied": {},
        "clients_seen_s": None,
        "queues": [],
        "others": [],
    }


def _silent(owned: Iterable[QueuePipeline], others: Iterable[KnownQueue], now: int) -> list[str]:
    """Return the brokers of queues whose figures are not new: they do not confirm the lock of an
    owned queue, or were not asked successfully about another one.
    """
    unsure = {each.queue.broker for each in owned if not each.is_owned(now)}
    return sorted(unsure | {each.queue.broker for each in others if each.trouble})


def _at_work(figures: Sequence[PipelineStatistics]) -> dict[str, Any]:
    """Return the sums over owned queues that a state depends on."""
    return {
        "unread": sum(each.end - each.position for each in figures),
        "trouble": "; ".join(sorted({why for each in figures for why in _troubles(each)})),
        **{
            name: sum(getattr(each, name) for each in figures)
            for name in ("ready", "leased", "retrying", "blocked", "unfinished")
        },
    }


def _troubles(figures: PipelineStatistics) -> Iterator[str]:
    """Yield what keeps a queue from going on, in words."""
    if figures.read_trouble:
        yield f"queues cannot be read: {figures.read_trouble}"
    if figures.trouble:
        yield figures.trouble


def _topics(
    lane: GroupLane, known: Sequence[KnownQueue], missed: Container[str]
) -> list[dict[str, Any]]:
    held_back = lane.rates.held_back(lane.buffer.ready_topics())
    by_topic: defaultdict[str, list[KnownQueue]] = defaultdict(list)
    for each in known:
        by_topic[each.queue.topic].append(each)
    return [
        {
            "name": topic.name,
            "order_key": topic.order_key,
            "max_rate": topic.max_rate,
            "rate_limited": topic.name in held_back,
            "wanted": topic.name in lane.presence.shown,
            "missing_key": topic.missing_key,
            **_passing(lane.counts.get(Topic(topic.name))),
            "figures": asdict(figures_of(by_topic[topic.name], complete=topic.name not in missed)),
        }
        for topic in lane.settings.topics
    ]


def _passing(counts: TopicCounts | None) -> dict[str, Any]:
    counts = counts or TopicCounts()
    last_ns = counts.last_expired_ns
    return {
        "delivered": counts.delivered,
        "filtered": counts.filtered + counts.passed_over,
        "filtered_in_a_row": counts.filtered_in_a_row,
        "expired": counts.expired,
        "keyless_in_a_row": counts.keyless_in_a_row,
        "handler_p50_s": _seconds(counts.measures.handler.median),
        "expired_ago_s": (now_ns() - last_ns) / 1e9 if last_ns else None,
    }


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _queue_view(pipeline: QueuePipeline, figures: PipelineStatistics) -> dict[str, Any]:
    queue = figures.queue
    return {
        **dict(zip(_SHOWN, _shown(figures), strict=True)),
        "topic": queue.topic,
        "queue": queue.qid,
        "for_topic": pipeline.topic,
        "name": pipeline.place,
        "sure": pipeline.is_owned(now_ns()),
        "parked_keys": 0 if pipeline.is_twin else len(pipeline.parked),
    }
