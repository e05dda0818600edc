"""Which queues a member of a group should own: averaging, as RocketMQ does it. Pure.

Every member computes the same answer from the same lists, so nobody has to tell anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_core.names import QueueName


def allocate(member: str, members: Iterable[str], queues: Sequence[QueueName]) -> list[QueueName]:
    """The consecutive share of *queues* of *member* among *members* (sorted).

    *queues* rise and none is there twice: a topic may have a hundred thousand, and whoever has its
    route sorts them once. Shares differ by one at most, the first ``len(queues) % len(members)``
    members get the longer ones; empty if *member* is not among *members*. O(members + share).
    Source: AllocateMessageQueueAveragely.
    """
    ordered_members = sorted(set(members))
    if member not in ordered_members:
        return []
    index = ordered_members.index(member)
    share, longer = divmod(len(queues), len(ordered_members))
    start = index * share + min(index, longer)
    return list(queues[start : start + share + (index < longer)])
