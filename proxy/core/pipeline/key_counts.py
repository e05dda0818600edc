"""Number of order keys of a queue by state, for metrics, which do not name keys. Pure.

Unlike views of single keys (``key_views``), it examines no chains: O(leases, retries, paused and
parked keys), however many keys there are.
"""

from __future__ import annotations

from enum import StrEnum

from proxy.core.keys.order_key import MissingKey
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING


class KeyCount(StrEnum):
    """State of a key with unfinished messages: the first that applies. Paused and parked keys count
    as such even without messages.
    """

    READY = "ready"
    RUNNING = "running"  # leased to a client
    RETRYING = "retrying"  # failed, waits for its retry time
    BLOCKED = "blocked"  # read again, stored as a dead letter, or waits for older messages
    PAUSED = "paused"
    PARKED = "parked"


def key_counts(pipeline: QueuePipeline) -> dict[KeyCount, int]:
    """Return the number of keys of *pipeline* in each state. A key just paused, but not yet set
    aside, may count as blocked instead of ready.
    """
    jobs = pipeline.jobs
    parked = set(pipeline.parked)
    running = {lease.job.key for lease in pipeline.leases} - parked - {None}
    paused = {key for key in pipeline.paused if key is not EVERYTHING} - parked - running
    retrying = {job.key for job in pipeline.leases.retrying()} - parked - paused - {None}
    elsewhere = sum(key in jobs.by_key for key in (*parked, *paused) if key is not None)
    left = max(0, len(jobs.by_key) - len(running) - len(retrying) - elsewhere)
    ready = min(left, pipeline.ready)
    if pipeline.keys.record.rule.missing is MissingKey.UNORDERED:
        ready = min(left, max(0, pipeline.ready - pipeline.unordered_ready))
    all_paused = left if EVERYTHING in pipeline.paused else 0
    return {
        KeyCount.READY: 0 if all_paused else ready,
        KeyCount.RUNNING: len(running),
        KeyCount.RETRYING: len(retrying),
        KeyCount.BLOCKED: 0 if all_paused else left - ready,
        KeyCount.PAUSED: len(paused) + all_paused,
        KeyCount.PARKED: len(parked),
    }
