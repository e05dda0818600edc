"""Departed clients of a broadcast group, and the topics that brokers keep for them. Pure.

A client is known by its offsets and by topics that contain its name. Its ownership records show
when it was last active: an owner writes one at its beginning, each hour, and at its end.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from broker_core.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, Group, Topic
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic

_OF_GROUPS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


@dataclass(frozen=True, slots=True)
class Belongings:
    """Topics that belong to one client, by content. Each set may be empty."""

    #: Ownership records: its activity and its finished offsets.
    records: frozenset[Topic]
    #: Parked messages, which no other client receives.
    parked: frozenset[Topic]
    #: Messages given up, or waiting for a retry.
    letters: frozenset[Topic]


def clients_of(
    group: Group, consumers: Iterable[tuple[Group, Topic]], topics: Iterable[Topic]
) -> dict[Group, set[Topic]]:
    """Return all known clients of *group* with the topics that each consumed.

    Args:
        group: the broadcast group.
        consumers: groups that have offsets, with the topics of these.
        topics: all existing topics.
    """
    found: dict[Group, set[Topic]] = {}
    for client, topic in consumers:
        if client.startswith(f"{group}%"):
            found.setdefault(client, set()).add(topic)
    for topic in topics:
        for prefix in _OF_GROUPS:
            if topic.startswith(f"{prefix}{group}%"):
                found.setdefault(Group(topic.removeprefix(prefix)), set())
    return {
        client: {topic for topic in consumed if not topic.startswith("%")}
        for client, consumed in found.items()
    }


def records_of(client: Group, consumed: Iterable[Topic]) -> set[Topic]:
    """Return the ownership topics of *client* for these topics and their parked topics."""
    topics = list(consumed)
    parked = [parked_topic(client, topic) for topic in topics]
    return {ownership_topic(client, topic) for topic in (*topics, *parked)}


def belongings(client: Group, consumed: Iterable[Topic], existing: Container[Topic]) -> Belongings:
    """Return the *existing* topics of *client*, which consumed these topics."""
    parked = {parked_topic(client, topic) for topic in consumed}
    records = records_of(client, consumed)
    letters = {Topic(prefix + client) for prefix in _OF_GROUPS}
    return Belongings(
        records=frozenset(filter(existing.__contains__, records)),
        parked=frozenset(filter(existing.__contains__, parked)),
        letters=frozenset(filter(existing.__contains__, letters)),
    )
