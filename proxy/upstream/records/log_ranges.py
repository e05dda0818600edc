"""Ranges that brokers keep of their logs, cached for a short time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker_core.client import BrokerClient
from broker_core.client.administration import RETENTION_FIGURES
from broker_core.client.results import ElectedReplicas
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RemotingError
from proxy.core.records.retention import LogRange

#: Queues that are handed over at the same time share an answer.
_FRESH_NS = 500_000_000


@dataclass(slots=True)
class _Known:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: LogRange | RemotingError | None = None
    answered_ns: int = 0
    file_bytes: int | None = None
    file_asked: bool = False
    retention: Mapping[str, int] = field(default_factory=dict)
    replicas: ElectedReplicas | None = None


class LogRanges:
    """Log ranges of all brokers of this proxy."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._known: defaultdict[str, _Known] = defaultdict(_Known)

    def retention(self) -> dict[str, dict[str, float]]:
        """Return the last known figures of each broker's retention: clock_ahead (s),
        unread_expiring and unread_deleted (messages); none of a broker that does not report them.
        """
        return {
            broker: {
                "clock_ahead": known.retention["retentionClockAheadMillis"] / 1000,
                "unread_expiring": known.retention["retentionUnreadExpiring"],
                "unread_deleted": known.retention["retentionUnreadDeleted"],
            }
            for broker, known in self._known.items()
            if len(known.retention) == len(RETENTION_FIGURES)
        }

    def replicas(self) -> dict[str, dict[str, float]]:
        """Return the last known figures of each broker whose replicas elect their master: voters,
        in_sync (both numbers of replicas, the master included) and master_epoch.
        """
        return {
            broker: {
                "voters": len(known.replicas.voters),
                "in_sync": len(known.replicas.in_sync),
                "master_epoch": known.replicas.epoch,
            }
            for broker, known in self._known.items()
            if known.replicas is not None
        }

    async def of(self, broker: str) -> LogRange:
        """Return the range that *broker* keeps, at most half a second old.

        Raises RemotingError. Concurrent callers share the failure of a broker that does not answer:
        one after the other they would fail for minutes.
        """
        known = self._known[broker]
        async with known.lock:
            if known.answer is None or now_ns() - known.answered_ns > _FRESH_NS:
                try:
                    known.answer = await self._ask(broker, known)
                except RemotingError as error:
                    known.answer = error.with_traceback(None)
                known.answered_ns = now_ns()
            if isinstance(known.answer, RemotingError):
                raise known.answer.with_traceback(None)
            return known.answer

    async def _ask(self, broker: str, known: _Known) -> LogRange:
        span = await self._client.log_span(broker)
        known.retention, known.replicas = span.retention, span.replicas
        if not known.file_asked:
            known.file_bytes = await self._file_bytes(broker)
            known.file_asked = True
        return LogRange(span.begin, span.end, known.file_bytes)

    async def _file_bytes(self, broker: str) -> int | None:
        """Return the size of the broker's log files; None if it refuses to show its settings."""
        try:
            return await self._client.log_file_bytes(broker)
        except BrokerError:
            return None
