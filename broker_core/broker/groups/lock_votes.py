"""Orderly locks that a majority of replicas has to grant. Pure.

Each replica votes by its own lock table, where a vote lives as long as a lock does. Two majorities
have a replica in common, and that one does not vote for two clients; so no two hold a queue, also
while brokers come and go, or a slave becomes master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from broker_core.names import QueueName


def majority_of(total_replicas: int) -> int:
    """How many votes a lock needs."""
    return total_replicas // 2 + 1


def granted(votes: Iterable[Iterable[QueueName]], *, total_replicas: int) -> frozenset[QueueName]:
    """Queues for which a majority voted; *votes* of one replica each."""
    counts = Counter(queue for vote in votes for queue in set(vote))
    needed = majority_of(total_replicas)
    return frozenset(queue for queue, count in counts.items() if count >= needed)
