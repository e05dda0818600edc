"""Collects the values of all metrics, defined in ``metrics``, at each scrape."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker_core.clock import now_ns, wall_ms
from broker_core.names import Group, Topic
from proxy.admin.metric_families import MetricFamilies, build_labels
from proxy.admin.snapshots import Unowned
from proxy.core.group.known_queue import KnownQueue, QueueOwner, Source
from proxy.core.jobs.window import Budget
from proxy.core.pipeline.effects import PipelineStatistics
from proxy.core.pipeline.key_counts import KeyCount, key_counts
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.downstream.send_counts import SendCounts
from proxy.lane.counts import TopicCounts
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import Confined, NoisyLog
from proxy.observe.metrics import (
    ACCESS,
    BUILD,
    BULK,
    CONFIGURATION,
    COUNTS_BY,
    DEAD_LETTERS,
    DELIVERIES,
    EPOCH,
    FEW_READY_KEYS,
    FULL_WINDOW,
    HEAD_BLOCKED,
    HISTOGRAMS,
    HOT_KEYS,
    JOINED,
    KEYS,
    LIMITS,
    OWNED_QUEUES,
    PROCESS,
    QUEUE_GAUGES,
    RATES,
    REDRIVEN,
    REPLICAS,
    RETENTION,
    SEND_FAILURES,
    SEND_SECONDS,
    SENDS,
    TAKE_OVERS,
    TOPIC_COUNTERS,
    TOPIC_QUEUES,
    UNOWNED,
    UNOWNED_KEYS,
    UNOWNED_QUEUES,
    WITHOUT_CLIENTS,
    MetricDefinition,
    definitions,
)

_noisy = NoisyLog(structlog.get_logger("metrics"))
_TOPS = [int(top) for top in HOT_KEYS.values]


class UnownedFigures(Unowned, Protocol):
    """Knowledge of queues that this proxy does not own."""

    def lag_without_clients(self) -> Mapping[tuple[Group, Topic], int]:
        """Return the lags of topics that no client at this proxy wants."""


@dataclass(slots=True, eq=False)
class ProxyCollector(Collector):
    """Converts statistics to metrics.

    Further figures: ``process`` by field, ``redriven`` dead letters by group and topic, ``bulk``
    readers by group and field, ``configuration`` by source and field, push ``deliveries`` by group,
    topic and field, refusals of ``limits`` by field and limit, ``access``: field, label values and
    value, and ``retention`` and ``replicas`` by broker and field, ``sends`` of thin
    clients, and what is known of ``unowned`` queues. ``per_queue``: one series for each queue, or
    one for all of a topic.
    """

    lanes: Iterable[GroupLane]
    memory: Budget
    process: Callable[[], dict[str, float]]
    redriven: Mapping[tuple[str, str], int] = field(default_factory=dict)
    bulk: Callable[[], Mapping[str, Mapping[str, float]]] = dict
    configuration: Callable[[], Mapping[str, Mapping[str, float]]] = dict
    deliveries: Callable[[], Mapping[tuple[Group, Topic], Mapping[str, float]]] = dict
    limits: Callable[[], Mapping[str, Mapping[str, float]]] = dict
    access: Callable[[], Iterable[tuple[str, list[str], float]]] = tuple
    retention: Callable[[], Mapping[str, Mapping[str, float]]] = dict
    replicas: Callable[[], Mapping[str, Mapping[str, float]]] = dict
    sends: SendCounts = field(default_factory=SendCounts)
    unowned: UnownedFigures | None = None
    per_queue: bool = True

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        found = self.families()
        for _ in self.steps(found):
            pass
        yield from found

    def families(self) -> MetricFamilies:
        """Return its families, without samples."""
        return MetricFamilies(definitions())

    def steps(self, found: MetricFamilies) -> Iterator[None]:
        """Put all samples into *found*, those of a queue in each step."""
        put = found.put
        put(BUILD, build_labels("proxy"), 1)
        queues = _Queues(found, per_queue=self.per_queue)
        lanes = list(self.lanes)
        served = _with_clients(lanes)
        for lane in lanes:
            with _without(lane):
                put(JOINED, [lane.name], lane.name in served)
                yield from _lane(found, lane, queues)
        if self.unowned is not None:
            yield from _unowned(found, self.lanes, self.unowned, queues)
        queues.finish()
        _sends(found, self.sends)
        for place, count in self.redriven.items():
            put(REDRIVEN, [*place], count)
        for group, values in self.bulk().items():
            for name, value in values.items():
                put(BULK[name], [group], value)
        for source, values in self.configuration().items():
            for name, value in values.items():
                put(CONFIGURATION[name], [source], value)
        for place, values in self.deliveries().items():
            for name, value in values.items():
                put(DELIVERIES[name], [*place], value)
        for name, values in self.limits().items():
            for limit, value in values.items():
                put(LIMITS[name], [limit], value)
        for name, labels, value in self.access():
            put(ACCESS[name], labels, value)
        for broker, values in self.retention().items():
            for name, value in values.items():
                put(RETENTION[name], [broker], value)
        for broker, values in self.replicas().items():
            for name, value in values.items():
                put(REPLICAS[name], [broker], value)
        put(PROCESS["memory"], [], self.memory.used)
        put(PROCESS["window"], [], self.memory.used / self.memory.limit)
        for name, value in self.process().items():
            put(PROCESS[name], [], value)


class _Queues:
    """The samples of queues, as they are or combined by group and topic."""

    def __init__(self, found: MetricFamilies, *, per_queue: bool) -> None:
        self._found = found
        self._per_queue = per_queue
        self._combined: dict[tuple[str, tuple[str, ...]], float] = {}
        self._unknown: set[tuple[str, tuple[str, ...]]] = set()  # sums that lack a queue
        self._definitions = {
            each.name: each
            for each in (*QUEUE_GAUGES.values(), KEYS, *UNOWNED.values(), UNOWNED_KEYS)
        }

    def put(self, definition: MetricDefinition, labels: Sequence[str], value: float) -> None:
        """Add a sample; *labels* begin with group, topic and queue."""
        if self._per_queue:
            self._found.put(definition, [*labels], value)
            return
        place = _place(definition, labels)
        before = self._combined.get(place, 0)
        self._combined[place] = max(before, value) if definition.highest else before + value

    def leave_out(self, definition: MetricDefinition, labels: Sequence[str]) -> None:
        """Leave out a sample that is unknown, and the sum that would lack it."""
        self._unknown.add(_place(definition, labels))

    def put_epoch(self, labels: Sequence[str], epoch: int) -> None:
        """Add the epoch of a queue, which means nothing for several."""
        if self._per_queue:
            self._found.put(EPOCH, [*labels], epoch)

    def finish(self) -> None:
        """Add the combined samples. Call once, at the end."""
        for place, value in self._combined.items():
            if place not in self._unknown:
                name, labels = place
                self._found.put(self._definitions[name], [*labels], value)


def _with_clients(lanes: Iterable[GroupLane]) -> set[str]:
    """Return the groups that this proxy is in because it has clients for them. Those of a broadcast
    group are groups of their own.
    """
    broadcast, joined = set[str](), set[str]()
    for lane in lanes:
        with _without(lane):
            if lane.is_broadcast:
                broadcast.add(lane.name)
            if lane.presence.joined:
                joined.add(lane.name)
    ends = ((name, end) for name in joined for end, char in enumerate(name) if char == "%")
    return {*joined, *(broadcast & {name[:end] for name, end in ends})}


def _place(definition: MetricDefinition, labels: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return name and labels of the sum that a sample belongs to."""
    group, topic, _, *more = labels
    return definition.name, (group, topic, "", *more)


def _sends(found: MetricFamilies, sends: SendCounts) -> None:
    for name, definition in SENDS.items():
        found.put(definition, [], getattr(sends, name))
    for reason in SEND_FAILURES.values:
        found.put(SEND_FAILURES, [reason], sends.failures[reason])
    found.put_histogram(SEND_SECONDS, [], sends.seconds)


def _lane(found: MetricFamilies, lane: GroupLane, queues: _Queues) -> Iterator[None]:
    """Add the samples of a group, those of a queue in each step."""
    put = found.put
    put(PROCESS["waiting_pulls"], [lane.name], lane.presence.waiting_pulls)
    found.put_histogram(TAKE_OVERS, [lane.name], lane.take_overs)
    for topic, counts in lane.counts.items():
        _topic(found, [lane.name, topic], counts)
    if lane.presence.joined:
        for topic, number in lane.rates.queues.items():
            put(TOPIC_QUEUES, [lane.name, topic], number)
    for limited, share in lane.rates.shares().items():
        put(RATES["share"], [lane.name, limited or ""], share)
    held_back = lane.rates.held_back(lane.buffer.ready_topics())
    for topic in lane.rates.limited_topics():
        put(RATES["held_back"], [lane.name, topic], topic in held_back)
    hottest: defaultdict[Topic, _Hottest] = defaultdict(_Hottest)
    owned: Counter[Topic] = Counter()
    blocked: Counter[Topic] = Counter()
    now, wall = now_ns(), wall_ms()
    for pipeline in list(lane.buffer):
        yield
        if pipeline.closed:
            continue
        figures = pipeline.statistics()
        labels = [lane.name, figures.queue.topic, figures.queue.qid]
        sure = pipeline.is_owned(now)
        for name, definition in QUEUE_GAUGES.items():
            value = _queue_value(figures, name, now=now, wall=wall)
            # A broker that does not answer, or serves no reads, may have more by now.
            if name == "lag" and not (sure and not figures.read_trouble):
                queues.leave_out(definition, labels)
            elif value is not None:
                queues.put(definition, labels, value)
        queues.put_epoch(labels, figures.epoch)
        if not pipeline.is_twin:  # parked keys are counted at their original queue
            keys = key_counts(pipeline)
            for state, count in keys.items():
                queues.put(KEYS, [*labels, state], count)
            owned[pipeline.topic] += 1
            is_full = figures.window_used > FULL_WINDOW
            blocked[pipeline.topic] += is_full and keys[KeyCount.READY] < FEW_READY_KEYS
            hottest[pipeline.topic].add(pipeline, now)
    for topic in owned:
        put(OWNED_QUEUES, [lane.name, topic], owned[topic])
        put(HEAD_BLOCKED, [lane.name, topic], blocked[topic])
    for topic, each in hottest.items():
        for top in _TOPS:
            put(HOT_KEYS, [lane.name, topic, str(top)], each.share(top))


def _unowned(
    found: MetricFamilies, lanes: Iterable[GroupLane], unowned: UnownedFigures, queues: _Queues
) -> Iterator[None]:
    """Add the samples of queues without an owner, those of one in each step; what is not known has
    none.
    """
    wall = wall_ms()
    for without, lag in unowned.lag_without_clients().items():
        found.put(WITHOUT_CLIENTS, [*without], lag)
    for lane in list(lanes):
        with _without(lane):
            yield from _unowned_of(found, lane, unowned, queues, wall=wall)


def _without(lane: GroupLane) -> Confined:
    """Return a context in which a bug with *lane* costs its own samples only."""
    return _noisy.confined(lane.name, "metrics of a group not collected", group=lane.name)


def _unowned_of(
    found: MetricFamilies, lane: GroupLane, unowned: UnownedFigures, queues: _Queues, *, wall: int
) -> Iterator[None]:
    dead_letters, _ = unowned.dead_letters(lane.name)
    if dead_letters is not None:
        found.put(DEAD_LETTERS, [lane.name], dead_letters)
    known = [each for each in unowned.of(lane) if each.owned is not QueueOwner.ELSEWHERE]
    for topic, number in Counter(each.queue.topic for each in known).items():
        found.put(UNOWNED_QUEUES, [lane.name, topic], number)
    for each in known:
        yield
        labels = [lane.name, each.queue.topic, each.queue.qid]
        for name, definition in UNOWNED.items():
            value = _unowned_value(each, name, wall=wall)
            if value is not None:
                queues.put(definition, labels, value)
        for state, count in (("parked", each.parked_keys), ("paused", each.paused_keys)):
            if count is not None:
                queues.put(UNOWNED_KEYS, [*labels, state], count)


def _unowned_value(known: KnownQueue, name: str, *, wall: int) -> float | None:
    """Return the value of a gauge; None if unknown."""
    if name != "oldest":
        value: int | None = getattr(known, name)
        return value
    if known.source is Source.NONE or known.lag is None or known.ever_owned is None:
        return None
    if not (known.ever_owned and (known.lag or known.unfinished)):
        return 0
    return None if known.oldest_ms is None else max(0, wall - known.oldest_ms) / 1000


def _topic(found: MetricFamilies, labels: list[str], counts: TopicCounts) -> None:
    for name, definition in TOPIC_COUNTERS.items():
        found.put(definition, labels, getattr(counts, name))
    for name, definition in COUNTS_BY.items():
        for value in definition.values:
            found.put(definition, [*labels, value], getattr(counts, name)[value])
    for name, definition in HISTOGRAMS.items():
        found.put_histogram(definition, labels, getattr(counts.measures, name))


class _Hottest:
    """The hottest keys of one topic's queues, limited to the largest number reported."""

    def __init__(self) -> None:
        self._total = 0
        self._counts: Counter[bytes] = Counter()

    def add(self, pipeline: QueuePipeline, now: int) -> None:
        """Add the hottest keys of one queue."""
        counts, total = pipeline.hot.top(_TOPS[-1], now_ns=now)
        self._total += total
        self._counts.update(counts)

    def share(self, top: int) -> float:
        """Return the share of the *top* hottest keys in all deliveries."""
        return sum(heapq.nlargest(top, self._counts.values())) / max(1, self._total)


def _queue_value(figures: PipelineStatistics, name: str, *, now: int, wall: int) -> float | None:
    """Return the value of a gauge; None if unknown."""
    if name == "lag":
        return max(0, figures.end - figures.committed)
    if name == "damaged":
        return max(0, figures.damaged_until - figures.damaged_from)
    if name == "read_fails":
        return bool(figures.read_trouble)
    if name == "span":
        return figures.position - figures.committed
    if name == "lag_seconds":
        if not figures.unfinished:
            return 0
        return None if figures.oldest_ms is None else max(0, wall - figures.oldest_ms) / 1000
    if name == "commit_age":
        waits = figures.base != figures.committed
        return max(0, now - figures.committed_ns) / 1e9 if waits else 0
    return float(getattr(figures, name))
