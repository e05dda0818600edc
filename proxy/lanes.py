"""The groups of this proxy by name, and the rule for groups that nobody configured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from broker_core.names import MAX_NAME_CHARS, Group, Topic, check_name
from proxy.errors import UnknownName
from proxy.group_lane import GroupLane
from proxy.group_settings import GroupSettings, TopicSettings

#: Order key of groups that are created on the fly: a message's own key, the safe choice.
AUTO_ORDER_KEY = "KEY"


@dataclass(slots=True)
class Lanes:
    """Finds the lane of a group; ``make`` makes one from settings and starts what belongs to it."""

    make: Callable[[GroupSettings], GroupLane]
    auto_create: bool = False
    _lanes: dict[Group, GroupLane] = field(default_factory=dict)
    # Those that are given up: clients get nothing more, but say what became of what they have.
    _retired: dict[Group, GroupLane] = field(default_factory=dict)

    def __iter__(self) -> Iterator[GroupLane]:
        return iter([*self._lanes.values(), *self._retired.values()])

    def add(self, settings: GroupSettings) -> GroupLane:
        """Make the lane of a group."""
        lane = self.make(settings)
        self._lanes[lane.name] = lane
        return lane

    def find(self, group: str | None) -> GroupLane | None:
        """The lane of *group*, None if there is none. It may be one that is given up."""
        name = Group(group or "")
        return self._lanes.get(name) or self._retired.get(name)

    def retire(self, group: str) -> GroupLane | None:
        """Serve no pulls of *group* any more; its verdicts count until it is dropped. None if there
        is no such group.
        """
        lane = self._lanes.pop(Group(group), None)
        if lane is not None:
            self._retired[lane.name] = lane
        return lane

    def drop(self, group: str) -> None:
        """Forget a group that was retired."""
        self._retired.pop(Group(group), None)

    def require(self, group: str | None, topics: Iterable[str] | None) -> GroupLane:
        """The lane of *group*, which has *topics* (None: any).

        With ``auto_create`` an unknown group subscribes the topics that it asks for, and a group
        made so the further ones. Raises UnknownName, with what exists, for anything else.
        """
        wanted = list(topics) if topics is not None else []
        if not group:
            raise UnknownName("the request names no group: set groupId to one of this proxy's")
        lane = self._lanes.get(Group(group))
        if lane is None and Group(group) in self._retired:
            raise UnknownName(f"group {_shown(group)} was removed: its queues are handed over")
        if self.auto_create and wanted:
            lane = self._subscribe(group, wanted, lane)
        if lane is None:
            known = ", ".join(sorted(self._lanes)) or "none yet"
            hint = "; name a topic to have it created" if self.auto_create else ""
            raise UnknownName(
                f"there is no group {_shown(group)} here; known groups: {known}{hint}"
            )
        for topic in wanted:
            if lane.settings.topic(topic) is None:
                known = ", ".join(sorted(each.name for each in lane.settings.topics))
                raise UnknownName(
                    f"group {group!r} has no topic {_shown(topic)}; its topics: {known}"
                )
        return lane

    def _subscribe(self, group: str, topics: list[str], lane: GroupLane | None) -> GroupLane:
        known = () if lane is None else lane.settings.topics
        missing = [name for name in topics if all(name != topic.name for topic in known)]
        if lane is not None and not (missing and lane.auto_created):
            return lane
        try:
            check_name("group", group)
            added = tuple(
                TopicSettings(name=Topic(check_name("topic", name)), order_key=AUTO_ORDER_KEY)
                for name in dict.fromkeys(missing)
            )
        except ValueError as error:
            raise UnknownName(str(error)) from None
        if lane is None:
            lane = self.add(GroupSettings(name=group, topics=added))
            lane.auto_created = True
        else:
            lane.settings = lane.settings.model_copy(update={"topics": (*known, *added)})
            lane.listener.on_wanted(lane)
        return lane


def _shown(name: str) -> str:
    """A name as errors show it: what came from a client may be megabytes."""
    return repr(name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…")
