"""Sent and finished messages of a world, and so the unfinished ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proxy.core.keys.topic_rules import parse_tags
from proxy.history.lives import broker_of
from testkit.explorer.plan import ConsumerPlan
from testkit.simulation.history import Event

_Place = tuple[str, int]  # queue and offset


class Unfinished:
    """Wanted messages that are not finished, from the events of a world."""

    def __init__(self, groups: Sequence[dict[str, Any]], consumers: Sequence[ConsumerPlan]) -> None:
        """Create it empty. *groups*: their current settings."""
        self._groups = groups
        self._consumers = consumers
        self._seen = 0
        self._tags: dict[str, str | None] = {}  # of messages
        self._tag_rules = {
            (group["name"], rules["name"]): [parse_tags(rules.get("tags", "*"))]
            for group in groups
            for rules in group["topics"]
        }
        self._sent: dict[str, dict[_Place, str | None]] = {}  # by topic: their tags
        self._finished: dict[tuple[str, str], set[_Place]] = {}  # by group and topic

    def tags_change(self, group: str, topic: str, expression: str) -> None:
        """Note the new tags of *topic* for *group*; a message is owed only if all rules accept
        it.
        """
        self._tag_rules[group, topic].append(parse_tags(expression))

    def left(self, events: Sequence[Event]) -> list[str]:
        """Return one sentence for each group and topic with unfinished messages."""
        self._look_at(events)
        left = []
        for group in self._groups:
            for rules in group["topics"]:
                topic = rules["name"]
                for name in self.readers(group, topic):
                    if missing := self._missing(group["name"], name, topic):
                        left.append(f"{name} {topic}: {len(missing)} left, {missing[0]}")
        return left

    def readers(self, group: dict[str, Any], topic: str | None) -> list[str]:
        """Return the groups, by their names in histories, that want *topic* for *group*; all of
        them for None.
        """
        clients = [
            f"consumer-{number}"
            for number, each in enumerate(self._consumers)
            if each.group == group["name"]
            and (topic is None or each.topics is None or topic in each.topics)
        ]
        if group.get("mode") == "broadcast":
            return [f"{group['name']}%{client}" for client in clients]
        return [group["name"]] if clients else []

    def _missing(self, group: str, reader: str, topic: str) -> list[_Place]:
        finished = self._finished.get((reader, topic), set())
        accepted = self._tag_rules[group, topic]
        return [
            place
            for place, tag in self._sent.get(topic, {}).items()
            if place not in finished and all(tags is None or tag in tags for tags in accepted)
        ]

    def _look_at(self, events: Sequence[Event]) -> None:
        for event in events[self._seen :]:
            match event["e"]:
                case "send":
                    self._tags[event["msg"]] = event.get("tag")
                case "send_ok" if "queue" in event:
                    place = (event["queue"], event["offset"])
                    tag = self._tags.get(event["msg"])
                    self._sent.setdefault(event["topic"], {})[place] = tag
                case "finish":
                    self._finished_by(event).add((event["queue"], event["offset"]))
                case "deleted":
                    gone = range(event["from"], event["to"])
                    self._finished_by(event).update((event["queue"], each) for each in gone)
                case "reset":
                    self._moved(event)
                case "topic" if event["what"] == "deleted":
                    self._forget(event["topic"], event.get("broker"))
                case "topic" if event["what"] == "restored":
                    self._keep(event["topic"], event["broker"], event["ends"])
        self._seen = len(events)

    def _finished_by(self, event: Event) -> set[_Place]:
        return self._finished.setdefault((event["group"], event["topic"]), set())

    def _moved(self, reset: Event) -> None:
        """Note that an operator moved a group: messages below are finished, those above are not."""
        finished = self._finished_by(reset)
        for place in self._sent.get(reset["topic"], ()):
            if place[0] == reset["queue"]:
                (finished.add if place[1] < reset["to"] else finished.discard)(place)

    def _forget(self, topic: str, broker: str | None) -> None:
        """Forget a life of *topic*, perhaps at one *broker* only."""

        def is_gone(place: _Place) -> bool:
            return broker in (None, broker_of(place[0]))

        self._forget_places(topic, is_gone)

    def _keep(self, topic: str, broker: str, ends: Mapping[str, int]) -> None:
        """Forget the messages of *topic* at *broker* that a restored copy of its log lacks."""

        def is_gone(place: _Place) -> bool:
            return broker_of(place[0]) == broker and place[1] >= ends.get(place[0], 0)

        self._forget_places(topic, is_gone)

    def _forget_places(self, topic: str, is_gone: Callable[[_Place], bool]) -> None:
        sent = self._sent.get(topic, {})
        self._sent[topic] = {at: tag for at, tag in sent.items() if not is_gone(at)}
        for name, finished in self._finished.items():
            if name[1] == topic:
                finished.difference_update([*filter(is_gone, finished)])
