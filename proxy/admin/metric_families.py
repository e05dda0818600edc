"""The samples of one scrape, by the definitions of their metrics."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from itertools import accumulate, chain

from aiohttp import web
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from proxy.core.jobs.measures import Histogram
from proxy.observe.metrics import PREFIX, MetricDefinition


class MetricFamilies:
    """The samples of one scrape."""

    def __init__(self, definitions: Iterable[MetricDefinition]) -> None:
        self._plain: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        self._histograms: dict[str, HistogramMetricFamily] = {}
        for each in definitions:
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


def metrics_response(registry: CollectorRegistry) -> web.Response:
    """Return the answer to a scrape."""
    body = generate_latest(registry)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


def build_labels(component: str) -> list[str]:
    """Return the labels of ``BUILD`` for a *component*: proxy or broker."""
    return [component, _version(), platform.python_version()]


@cache
def _version() -> str:
    return version("orderlane")  # reads a file


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return the registry of a ``/metrics``: *collectors* and the metrics of the process."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
