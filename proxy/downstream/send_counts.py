"""Counts of the sends of thin clients, for metrics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.core.jobs.measures import Histogram


@dataclass(slots=True, eq=False)
class SendCounts:
    """Counts since the proxy started: ``requests``, a batch counts once, and the ``messages`` that
    brokers stored, with the ``body_bytes`` of them. ``failures`` are requests by reason.
    """

    requests: int = 0
    messages: int = 0
    body_bytes: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    #: From a request to its answer.
    seconds: Histogram = field(default_factory=Histogram)

    def stored(self, body_bytes: Iterable[int]) -> None:
        """Count stored messages by the sizes of their bodies."""
        for each in body_bytes:
            self.messages += 1
            self.body_bytes += each

    def stored_batch(self, body_bytes: Sequence[int]) -> None:
        """Count the stored messages of an encoded batch, without a look at each."""
        self.messages += len(body_bytes)
        self.body_bytes += sum(body_bytes)

    def answered(self, reason: str | None, took_ns: int) -> None:
        """Count a request; *reason* is that of its failure, None without one."""
        self.requests += 1
        self.seconds.note(took_ns)
        if reason is not None:
            self.failures[reason] += 1

    def refused(self, reason: str) -> None:
        """Count a request that was refused before anything was sent."""
        self.requests += 1
        self.failures[reason] += 1
