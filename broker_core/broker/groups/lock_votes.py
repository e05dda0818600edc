"""Orderly locks that need a majority of the replicas. Pure.

Each replica votes by its own lock table, and a vote lives as long as a lock. Two majorities share a
replica, which does not vote for two clients; so two clients never hold a queue, even while brokers
come and go, or a slave becomes master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from broker_core.names import QueueName


def majority_of(total_replicas: int) -> int:
    """Return the number of votes that a lock needs."""
    return total_replicas // 2 + 1


def granted(votes: Iterable[Iterable[QueueName]], *, total_replicas: int) -> frozenset[QueueName]:
    """Return the queues for which a majority voted; *votes* are those of one replica each."""
    counts = Counter(queue for vote in votes for queue in set(vote))
    needed = majority_of(total_replicas)
    return frozenset(queue for queue, count in counts.items() if count >= needed)
