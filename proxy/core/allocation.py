"""Which queues a member of a group should own: averaging, as RocketMQ does it. Pure.

Every member computes the same answer from the same lists, so nobody has to tell anybody.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.names import QueueName


def allocate(member: str, members: Iterable[str], queues: Iterable[QueueName]) -> list[QueueName]:
    """The consecutive share of *queues* (sorted) of *member* among *members* (sorted).

    Shares differ by one at most, the first ``len(queues) % len(members)`` members get the longer
    ones; empty if *member* is not among *members*. Source: AllocateMessageQueueAveragely.
    """
    ordered_members = sorted(set(members))
    ordered_queues = sorted(set(queues))
    if member not in ordered_members:
        return []
    index = ordered_members.index(member)
    share, longer = divmod(len(ordered_queues), len(ordered_members))
    start = index * share + min(index, longer)
    return ordered_queues[start : start + share + (index < longer)]
