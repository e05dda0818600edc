"""Allocation of queues to the members of a group: averaging, as RocketMQ does it. Pure.

All members compute the same result from the same lists, without communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_core.names import QueueName


def allocate(member: str, members: Iterable[str], queues: Sequence[QueueName]) -> list[QueueName]:
    """Return the consecutive share of *queues* of *member* among *members*.

    *queues* rise without repeats; callers sort each route only once, because a topic may have a
    hundred thousand. Shares differ by at most one, and the first ``len(queues) % len(members)``
    members, in sorted order, get the longer ones. Empty if *member* is not among *members*.
    O(members + share). Source: AllocateMessageQueueAveragely.
    """
    ordered_members = sorted(set(members))
    if member not in ordered_members:
        return []
    index = ordered_members.index(member)
    share, longer = divmod(len(queues), len(ordered_members))
    start = index * share + min(index, longer)
    return list(queues[start : start + share + (index < longer)])
