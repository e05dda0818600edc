"""Samples the traffic of a broker every ten seconds."""

from __future__ import annotations

import asyncio
import time

from broker_core.broker.traffic import SAMPLE_EVERY_S, Traffic
from broker_core.clock import wall_ms
from broker_core.store.reader import StoreReader
from broker_core.tasks import cancel_and_wait, spawn


class TrafficSampler:
    """Created when the broker starts; ``traffic`` has the counts."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._task: asyncio.Task[None] | None = None
        self.traffic = Traffic(reader.put_by_topic(), now_ms=wall_ms(), day=_today())

    def start(self) -> None:
        """Start sampling."""
        self._task = spawn(self._sample_regularly(), name="count messages")

    async def close(self) -> None:
        """Stop sampling."""
        await cancel_and_wait(self._task)

    async def _sample_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            self.traffic.sample(self._reader.put_by_topic(), now_ms=wall_ms(), day=_today())


def _today() -> int:
    """Return a number for the day on this machine's calendar."""
    now = time.localtime()
    return now.tm_year * 1000 + now.tm_yday
