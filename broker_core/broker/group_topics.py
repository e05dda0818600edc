"""Pairs of a group and a topic, found by either: what belongs to one is deleted without a scan of
all others. Pure.
"""

from __future__ import annotations

from broker_core.names import Group, Topic


class GroupTopics:
    """A set of pairs."""

    def __init__(self) -> None:
        self._topics: dict[Group, dict[Topic, None]] = {}
        self._groups: dict[Topic, dict[Group, None]] = {}

    def add(self, group: Group, topic: Topic) -> None:
        """Add a pair."""
        self._topics.setdefault(group, {})[topic] = None
        self._groups.setdefault(topic, {})[group] = None

    def groups(self) -> set[Group]:
        """Return all groups."""
        return set(self._topics)

    def groups_of(self, topic: Topic) -> list[Group]:
        """Return the groups of *topic*."""
        return list(self._groups.get(topic, ()))

    def topics_of(self, group: Group) -> list[Topic]:
        """Return the topics of *group*."""
        return list(self._topics.get(group, ()))

    def take_group(self, group: Group) -> list[Topic]:
        """Remove the pairs of *group*; return their topics."""
        topics = list(self._topics.pop(group, ()))
        for topic in topics:
            del self._groups[topic][group]
            if not self._groups[topic]:
                del self._groups[topic]
        return topics

    def take_topic(self, topic: Topic) -> list[Group]:
        """Remove the pairs of *topic*; return their groups."""
        groups = list(self._groups.pop(topic, ()))
        for group in groups:
            del self._topics[group][topic]
            if not self._topics[group]:
                del self._topics[group]
        return groups
