"""Retention: deletes old segments of the log, after moving waiting messages out of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_core.broker.delays.delivery import DelayedDelivery
from broker_core.broker.settings import BrokerSettings
from broker_core.clock import wall_ms
from broker_core.rare_warnings import RareWarnings
from broker_core.store.message_store import MessageStore


class Retention:
    """The retention of one broker; call ``run`` periodically."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        store: MessageStore,
        delayed: DelayedDelivery,
        keep_from: Callable[[], int | None],
    ) -> None:
        """Apply *settings* to *store*.

        *keep_from* returns the log offset from which on nothing may be deleted, or None.
        """
        self._keep_from = keep_from
        self._settings = settings
        self._store = store
        self._delayed = delayed
        self._turn = asyncio.Lock()
        self._warnings = RareWarnings("broker")

    async def run(self) -> None:
        """Delete expired segments, the oldest first. Raise OSError."""
        async with self._turn:
            await self._run()

    async def _run(self) -> None:
        hours = self._settings.retention_hours
        before_ms = None if hours is None else wall_ms() - int(hours * 3_600_000)
        keep_bytes = self._settings.retention_bytes
        cleared = 0
        while True:
            segment = self._store.next_to_expire(before_ms=before_ms, keep_bytes=keep_bytes)
            if segment is None or segment.end <= cleared:
                break
            keep_from = self._keep_from()
            if keep_from is not None and segment.end > keep_from:
                break
            # A short segment, made on a full disk, contains only waiting messages.
            length = max(segment.capacity, self._settings.segment_bytes)
            if not await self._delayed.make_way(segment.end, length):
                self._warnings.warn(
                    "old messages kept: delayed ones among them are too many or too large to move",
                    peer="",
                    segment=str(segment.path),
                )
                break
            cleared = segment.end
            await self._store.delete_expired(
                before_ms=before_ms, keep_bytes=keep_bytes, keep_from=cleared
            )
