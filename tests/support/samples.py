"""Samples of messages for simulations, and a naive simulation to hold them against."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes

#: Keys of the messages of each queue, in their order; None: without one.
Queues = Sequence[Sequence[str | None]]


def sample_of(queues: Queues, *candidates: str) -> Sample:
    """Messages with those keys as their own, by default for the candidate ``KEY``."""
    sample = Sample(candidates or ("KEY",))
    for queue, keys in enumerate(queues):
        for offset, key in enumerate(keys):
            message = SimpleNamespace(key=key, body=b"")
            sample.add(message, queue=f"broker-a_{queue}", offset=offset, stored_ms=offset)
    return sample


def by_key(**others: object) -> TopicRules:
    """Rules of a topic; a simulation puts the candidate's key into them."""
    return TopicRules(compile_order_key("KEY"), **others)  # type: ignore[arg-type]


def naive_makespan_ns(queues: Queues, service: ServiceTimes) -> int:
    """When the last message ends if everybody has a handler: that of the longest chain, which is a
    key over all queues, or what has none in one queue.
    """
    ends: dict[int | str, int] = {}
    for queue, keys in enumerate(queues):
        for offset, key in enumerate(keys):
            chain = queue if key is None else key
            ends[chain] = ends.get(chain, 0) + service.ns(queue, offset)
    return max(ends.values(), default=0)
