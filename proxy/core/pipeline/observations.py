"""Measures of one queue's messages and events of its keys. Pure; no decision depends on them."""

from __future__ import annotations

from collections.abc import Collection

from proxy.core.jobs.chains import Job, JobChains
from proxy.core.jobs.measures import Measures
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.recent_keys import HotKeys, KeyEvent, KeyEvents


class Observations:
    """Measures, hot keys, and the last events of keys with unusual events. ``now`` is the time of
    events that do not contain one.

    Caller: components of the pipeline write; metrics and operator views read. Affects: chains,
    which use the same ``measures``.
    """

    def __init__(self, chains: JobChains) -> None:
        """Observe the queue that has *chains*."""
        self._chains = chains
        self.now = chains.now
        self.hot = HotKeys()
        self.events = KeyEvents()
        #: Keys that have events; a live view.
        self.noted_keys = self.events.keys
        self.measure_by(Measures())

    def measure_by(self, measures: Measures, *, hot: HotKeys | None = None) -> None:
        """Add further measures to *measures*, and count deliveries of keys in *hot*."""
        self.measures = measures
        self.hot = hot or self.hot
        self._chains.measured_by(measures)

    def handed_out(self, leases: Collection[Lease]) -> None:
        """Note deliveries of keys that have recent events."""
        if not self.noted_keys:
            return
        for each in leases:
            if each.job.key in self.noted_keys:
                client = each.holder.client or f"connection {each.holder.connection}"
                self.note(each.job, "delivered", f"to {client}")

    def note(self, job: Job, what: str, detail: str) -> None:
        """Note the event *what* of *job*."""
        if job.key is not None:
            event = KeyEvent(self.now.ns, what, job.offset, job.attempts, detail)
            self.events.note(job.key, event)
