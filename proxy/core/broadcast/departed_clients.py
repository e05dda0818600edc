"""Which clients a broadcast group had, and what brokers keep for each of them. Pure.

A client is known by its offsets, and by topics that have its name. Its ownership records say when
it was last there: an owner writes one at its beginning, each hour, and at its end.
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
    """The topics that are one client's alone, by what they hold. Each set may be empty."""

    #: When it was there, and what it had finished.
    records: frozenset[Topic]
    #: Messages that wait for it: nobody else gets them.
    parked: frozenset[Topic]
    #: Messages that were given up, or wait for another try.
    letters: frozenset[Topic]


def clients_of(
    group: Group, consumers: Iterable[tuple[Group, Topic]], topics: Iterable[Topic]
) -> dict[Group, set[Topic]]:
    """The clients that *group* ever had, as far as anything is left of them, and which topics each
    consumed. *consumers*: groups with offsets, and the topics of these; *topics*: all that exist.
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
    """The ownership topics of *client* for these topics, and for what is parked of them."""
    topics = list(consumed)
    parked = [parked_topic(client, topic) for topic in topics]
    return {ownership_topic(client, topic) for topic in (*topics, *parked)}


def belongings(client: Group, consumed: Iterable[Topic], existing: Container[Topic]) -> Belongings:
    """What of *client*, which consumed these topics, is among the *existing* ones."""
    parked = {parked_topic(client, topic) for topic in consumed}
    records = records_of(client, consumed)
    letters = {Topic(prefix + client) for prefix in _OF_GROUPS}
    return Belongings(
        records=frozenset(filter(existing.__contains__, records)),
        parked=frozenset(filter(existing.__contains__, parked)),
        letters=frozenset(filter(existing.__contains__, letters)),
    )
