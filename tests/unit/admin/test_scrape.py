"""``/metrics`` in slices: the same text as in one piece, with turns for others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from proxy.admin.metric_families import Scrape


class Many(Collector):
    """*count* samples of each kind of metric."""

    def __init__(self, count: int) -> None:
        self._count = count

    def collect(self) -> Iterator[Metric]:
        counter = CounterMetricFamily("sent", "Messages.", labels=["queue"])
        gauge = GaugeMetricFamily("lag", 'A "lag",\nin messages.', labels=["queue"])
        times = HistogramMetricFamily("took_seconds", "Times.", labels=["queue"])
        for number in range(self._count):
            queue = [f'broker "{number}"\n']
            counter.add_metric(queue, number)
            gauge.add_metric(queue, number / 3)
            times.add_metric(queue, [("0.1", number), ("+Inf", number + 1)], number / 7)
        yield from (counter, gauge, times)


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 1_000])
async def test_the_text_is_that_of_the_library(count: int) -> None:
    text = await Scrape(Many(count)).text()
    alone = generate_latest(Many(count))
    assert text.startswith(alone)
    assert b"process_cpu_seconds_total" in text.removeprefix(alone)


async def test_others_work_meanwhile() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(other())
        await Scrape(Many(10_000)).text()
        task.cancel()
    assert turns > 100
