"""Samples of messages for simulations, and a naive simulation to compare with."""

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
    """Return messages with these keys as their own, by default for the candidate ``KEY``."""
    sample = Sample(candidates or ("KEY",))
    for queue, keys in enumerate(queues):
        for offset, key in enumerate(keys):
            message = SimpleNamespace(key=key, body=b"")
            sample.add(message, queue=f"broker-a_{queue}", offset=offset, stored_ms=offset)
    return sample


def by_key(**others: object) -> TopicRules:
    """Return a topic's rules; a simulation replaces the order key by the candidate's."""
    return TopicRules(compile_order_key("KEY"), **others)  # type: ignore[arg-type]


def naive_makespan_ns(queues: Queues, service: ServiceTimes) -> int:
    """Return the end of the last message if handlers are unlimited: that of the longest chain,
    where a chain is a key over all queues, or the messages without a key in one queue.
    """
    ends: dict[int | str, int] = {}
    for queue, keys in enumerate(queues):
        for offset, key in enumerate(keys):
            chain = queue if key is None else key
            ends[chain] = ends.get(chain, 0) + service.ns(queue, offset)
    return max(ends.values(), default=0)
