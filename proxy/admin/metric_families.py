"""The samples of one scrape, by the definitions of their metrics."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import cache
from importlib.metadata import version
from itertools import accumulate, chain
from typing import Protocol, runtime_checkable

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

from broker_core.tasks import Turns
from proxy.core.jobs.measures import Histogram
from proxy.observe.metrics import PREFIX, MetricDefinition

#: Steps of a collector, and lines of text, between which other tasks have a turn.
_STEPS, _SAMPLES = 16, 100


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


@runtime_checkable
class Stepwise(Protocol):
    """A collector whose samples can be gathered in steps, with other work in between."""

    def steps(self, found: MetricFamilies) -> Iterator[None]:
        """Put all samples into *found*, a few in each step."""

    def families(self) -> MetricFamilies:
        """Return its families, without samples."""


class Scrape:
    """The samples of a ``/metrics``: those of *collectors*, and the metrics of the process.

    With thousands of queues an answer is megabytes of text. It is gathered and written in slices of
    less than a millisecond, between which the event loop serves clients.
    """

    def __init__(self, *collectors: Collector) -> None:
        own = CollectorRegistry()
        ProcessCollector(registry=own)
        PlatformCollector(registry=own)
        self._collectors = (*collectors, own)

    async def response(self) -> web.Response:
        """Return the answer to a scrape."""
        body = await self.text()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        parts: list[bytes] = []
        for collector in self._collectors:
            for family in await _gathered(collector):
                async for part in _lines(family):
                    parts.append(part)
        return b"".join(parts)


async def _gathered(collector: Collector | CollectorRegistry) -> Iterable[Metric]:
    if not isinstance(collector, Stepwise):
        return collector.collect()
    found, turns = collector.families(), Turns(_STEPS)
    for _ in collector.steps(found):
        await turns.step()
    return found


async def _lines(family: Metric) -> AsyncIterator[bytes]:
    """Yield the lines of *family*, its head only once."""
    samples = family.samples
    for start in range(0, max(1, len(samples)), _SAMPLES):
        part = Metric(family.name, family.documentation, family.type, family.unit)
        part.samples = samples[start : start + _SAMPLES]
        text = generate_latest(_Only(part))
        yield text if not start else text.split(b"\n", 2)[2]
        await asyncio.sleep(0)


class _Only(Collector):
    """A single family, for the library's writer."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def build_labels(component: str) -> list[str]:
    """Return the labels of ``BUILD`` for a *component*: proxy or broker."""
    return [component, _version(), platform.python_version()]


@cache
def _version() -> str:
    return version("orderlane")  # reads a file
