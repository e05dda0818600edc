"""Collects the values of all metrics, defined in ``metrics``, at each scrape."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from broker_core.clock import now_ns, wall_ms
from broker_core.names import Group, Topic
from proxy.core.jobs.measures import Histogram
from proxy.core.jobs.window import Budget
from proxy.core.pipeline.effects import PipelineStatistics
from proxy.core.pipeline.key_counts import key_counts
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.counts import TopicCounts
from proxy.lane.group_lane import GroupLane
from proxy.observe.metrics import (
    ACCESS,
    BULK,
    CONFIGURATION,
    COUNTS_BY,
    DELIVERIES,
    HISTOGRAMS,
    HOT_KEYS,
    JOINED,
    KEYS,
    LIMITS,
    PREFIX,
    PROCESS,
    QUEUE_GAUGES,
    RATES,
    REDRIVEN,
    REPLICAS,
    RETENTION,
    SESSIONS,
    TAKE_OVERS,
    TOPIC_COUNTERS,
    TOPIC_QUEUES,
    MetricDefinition,
    definitions,
)

_TOPS = [int(top) for top in HOT_KEYS.values]


class _Families:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._plain: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        self._histograms: dict[str, HistogramMetricFamily] = {}
        for each in definitions():
            name, labels = PREFIX + each.name, list(each.labels)
            if each.bounds:
                self._histograms[each.name] = HistogramMetricFamily(name, each.help, labels=labels)
            else:
                kind = CounterMetricFamily if each.counter else GaugeMetricFamily
                plain = kind(name.removesuffix("_total"), each.help, labels=labels)
                self._plain[each.name] = plain

    def __iter__(self) -> Iterator[Metric]:
        return chain(self._plain.values(), self._histograms.values())

    def put(self, definition: MetricDefinition, labels: list[str], value: float) -> None:
        """Add one sample."""
        self._plain[definition.name].add_metric(labels, value)

    def put_histogram(
        self, definition: MetricDefinition, labels: list[str], histogram: Histogram
    ) -> None:
        """Add the samples of a histogram; times are in seconds."""
        unit = 1e9 if definition.name.endswith("_seconds") else 1
        bounds = [*(f"{bound:g}" for bound in definition.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        total = histogram.total / unit
        self._histograms[definition.name].add_metric(labels, buckets, total)


@dataclass(slots=True, eq=False)
class ProxyCollector(Collector):
    """Converts statistics to metrics.

    Further figures: ``process`` by field, ``redriven`` dead letters by group and topic, ``bulk``
    readers by group and field, ``configuration`` by source and field, push ``deliveries`` by group,
    topic and field, refusals of ``limits`` by field and limit, ``access``: field, label values and
    value, and ``retention``, ``replicas`` and ``sessions`` by broker and field.
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
    sessions: Callable[[], Mapping[str, Mapping[str, float]]] = dict

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        found = _Families()
        put = found.put
        for lane in self.lanes:
            _lane(found, lane)
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
        for broker, values in self.sessions().items():
            for name, value in values.items():
                put(SESSIONS[name], [broker], value)
        put(PROCESS["memory"], [], self.memory.used)
        put(PROCESS["window"], [], self.memory.used / self.memory.limit)
        for name, value in self.process().items():
            put(PROCESS[name], [], value)
        yield from found


def _lane(found: _Families, lane: GroupLane) -> None:
    """Add the samples of a group."""
    put = found.put
    put(PROCESS["waiting_pulls"], [lane.name], lane.presence.waiting_pulls)
    put(JOINED, [lane.name], lane.presence.joined)
    found.put_histogram(TAKE_OVERS, [lane.name], lane.take_overs)
    for topic, counts in lane.counts.items():
        _topic(found, [lane.name, topic], counts)
    if lane.presence.joined:
        for topic, queues in lane.rates.queues.items():
            put(TOPIC_QUEUES, [lane.name, topic], queues)
    for limited, share in lane.rates.shares().items():
        put(RATES["share"], [lane.name, limited or ""], share)
    held_back = lane.rates.held_back(lane.buffer.ready_topics())
    for topic in lane.rates.limited_topics():
        put(RATES["held_back"], [lane.name, topic], topic in held_back)
    hottest: defaultdict[Topic, _Hottest] = defaultdict(_Hottest)
    now, wall = now_ns(), wall_ms()
    for pipeline in lane.buffer:
        figures = pipeline.statistics()
        labels = [lane.name, figures.queue.topic, figures.queue.qid]
        for name, definition in QUEUE_GAUGES.items():
            value = _queue_value(figures, name, now=now, wall=wall)
            if value is not None:
                put(definition, labels, value)
        if pipeline.origin is pipeline:  # parked keys are counted at their original queue
            for state, count in key_counts(pipeline).items():
                put(KEYS, [*labels, state], count)
            hottest[pipeline.topic].add(pipeline, now)
    for topic, each in hottest.items():
        for top in _TOPS:
            put(HOT_KEYS, [lane.name, topic, str(top)], each.share(top))


def _topic(found: _Families, labels: list[str], counts: TopicCounts) -> None:
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


def registry_of(collector: ProxyCollector) -> CollectorRegistry:
    """Return the registry of ``/metrics``: the proxy's metrics and those of its process."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
