"""How many order keys of a queue are in which state. Pure; for metrics, where no key is named.

Unlike views of single keys (``key_views``) it looks at no chain: it costs O(leases, retries, paused
and parked keys), however many keys there are.
"""

from __future__ import annotations

from enum import StrEnum

from proxy.core.keys.order_key import MissingKey
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING


class KeyCount(StrEnum):
    """Of keys with unfinished messages, by the first of these; but a key that is paused or parked
    counts as that, with messages or without.
    """

    READY = "ready"
    RUNNING = "running"  # a client has it
    RETRYING = "retrying"  # it failed, and waits for its retry time
    BLOCKED = "blocked"  # it is read again, or stored as a dead letter, or waits for older messages
    PAUSED = "paused"
    PARKED = "parked"


def key_counts(pipeline: QueuePipeline) -> dict[KeyCount, int]:
    """How many keys of *pipeline* are in each state. What was paused a moment ago, and is about to
    be set aside, may count as blocked instead of ready for that moment.
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
