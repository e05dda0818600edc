"""The groups of this proxy by name, and the creation of groups without settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from broker_core.names import MAX_NAME_CHARS, Group, Topic, check_name
from proxy.core.broadcast.member_group import member_group
from proxy.core.keys.group_names import check_group
from proxy.errors import NotOfGroup, Refused, Unavailable, UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.known_clients import KnownClients
from proxy.settings.groups import GroupSettings, TopicSettings

#: Maximum clients of one broadcast group on a proxy. Each uses the resources of a group.
MAX_MEMBERS = 1_000
#: Order key of automatically created groups: a message's own key, the safe choice.
AUTO_ORDER_KEY = "KEY"
#: Most existing names in the error for an unknown one: clients repeat such requests.
_SHOWN_NAMES = 50


@dataclass(slots=True)
class Lanes:
    """Finds the lane of a group; ``make`` creates one from settings and starts its tasks."""

    make: Callable[[GroupSettings], GroupLane]
    auto_create: bool = False
    #: Most groups, and topics of a group, up to which ``auto_create`` creates them.
    max_groups: int = 10_000
    max_group_topics: int = 1_000
    #: Why settings of a group without a lane may exist that are not in use; "" if there are none.
    unserved: Callable[[str], str] = lambda _group: ""
    _lanes: dict[str, GroupLane] = field(default_factory=dict)
    _member_of: dict[Group, Group] = field(default_factory=dict)  # clients of broadcast groups
    _members_of: dict[Group, dict[Group, None]] = field(default_factory=dict)  # the same, by group
    #: Clients of broadcast groups known to the brokers, and those that have come since.
    known_clients: KnownClients = field(default_factory=KnownClients)
    # Groups being removed: their clients get no messages, but their verdicts still count.
    _retired: dict[Group, GroupLane] = field(default_factory=dict)

    def __iter__(self) -> Iterator[GroupLane]:
        return iter([*self._lanes.values(), *self._retired.values()])

    def add(self, settings: GroupSettings) -> GroupLane:
        """Create the lane of a group."""
        lane = self.make(settings)
        self._lanes[lane.name] = lane
        return lane

    def find(self, group: str | None) -> GroupLane | None:
        """Return the lane of *group*, perhaps one being removed; None if there is none."""
        name = Group(group or "")
        return self._lanes.get(name) or self._retired.get(name)

    def retire(self, group: str) -> GroupLane | None:
        """Stop pulls of *group*; its verdicts count until ``drop``. Return None if there is no such
        group.
        """
        lane = self._lanes.pop(Group(group), None)
        self._forget_member(Group(group))
        if lane is not None:
            self._retired[lane.name] = lane
        return lane

    def drop(self, group: str) -> None:
        """Forget a retired group."""
        self._retired.pop(Group(group), None)

    def holder_of(self, group: str | None, client: str | None) -> GroupLane | None:
        """Return the lane with the leases that *client* got from *group*; None if there is none."""
        lane = self._lanes.get(group or "") or self.find(group)
        if lane is None or not lane.is_broadcast:
            return lane
        return self.find(member_group(lane.name, client)) if client else None

    def asked_as(self, name: str) -> str:
        """Return the group whose clients pull from *name*: for a client of a broadcast group that
        group, otherwise *name*.
        """
        end = name.find("%")
        while end > 0:
            lane = self.find(name[:end])
            if lane is not None and lane.is_broadcast:
                return name[:end]
            end = name.find("%", end + 1)
        return name

    def members(self, group: Group | None = None) -> list[GroupLane]:
        """Return the lanes of the clients of a broadcast group (None: of all)."""
        names = self._member_of if group is None else self._members_of.get(group, ())
        return [self._lanes[name] for name in names]

    def leave_member(self, lane: GroupLane) -> bool:
        """Forget an absent client until its next pull; return False if its group is
        being removed.
        """
        if self._lanes.get(lane.name) is not lane:
            return False
        del self._lanes[lane.name]
        self._forget_member(lane.name)
        return True

    def serving(
        self, group: str | None, topics: Iterable[str] | None, client: str | None
    ) -> GroupLane:
        """Return the lane that serves pulls of *client* for *group*; of a broadcast group, the
        client's own.

        The lane of a broadcast client is created at its first pull. Raises UnknownName like
        ``require``, and Refused if a broadcast group cannot identify the client.
        """
        lane = self._lanes.get(group) if group and topics is None else None
        if lane is None:
            topics = None if topics is None else list(topics)
            lane = self.require(group, topics)
        if (of := self._member_of.get(lane.name)) is not None:
            raise Refused(
                f"{lane.name!r} is one client of the broadcast group {of!r}: pull as that group,"
                " with the clientId"
            )
        if not lane.is_broadcast:
            return lane
        if not client:
            raise Refused(
                f"group {lane.name!r} is broadcast, so each client gets all messages: set"
                " clientId to a lasting name, under which the client resumes"
            )
        return self._member(lane, member_group(lane.name, client))

    def _member(self, of: GroupLane, name: Group) -> GroupLane:
        if (lane := self._lanes.get(name)) is None:
            if len(self._members_of.get(of.name, ())) >= MAX_MEMBERS:
                raise Refused(
                    f"group {of.name!r} has {MAX_MEMBERS} clients at this proxy, the maximum: give"
                    " each client a lasting clientId, or add proxies"
                )
            forgets = of.settings.forget_after_s is not None
            most = of.settings.max_clients
            self.known_clients.admit(of.name, name, most=most, forgets=forgets)
            lane = self.add(member_settings(of.settings, name))
            self._member_of[name] = of.name
            self._members_of.setdefault(of.name, {})[name] = None
        elif self._member_of.get(name) != of.name:
            raise Refused(f"{name!r} is the name of another group: use a different clientId")
        return lane

    def _forget_member(self, name: Group) -> None:
        of = self._member_of.pop(name, None)
        if of is not None:
            del self._members_of[of][name]
            if not self._members_of[of]:
                del self._members_of[of]

    def require(self, group: str | None, topics: Iterable[str] | None) -> GroupLane:
        """Return the lane of *group*, which has *topics* (None: any).

        With ``auto_create`` an unknown group is created with these topics, and a group created so
        gets further ones; raises Refused beyond the limits. Otherwise raises UnknownName with the
        existing names. Raises Unavailable like ``check_settings``.
        """
        wanted = list(topics) if topics is not None else []
        if not group:
            raise UnknownName("the request names no group: set groupId to one of this proxy's")
        lane = self._lanes.get(Group(group))
        if lane is None and Group(group) in self._retired:
            raise self._unknown(group)
        if lane is None:
            self.check_settings(group)
        if self.auto_create and wanted:
            lane = self._subscribe(group, wanted, lane)
        if lane is None:
            hint = "; name a topic to have it created" if self.auto_create else ""
            raise self._unknown(group, hint)
        for topic in wanted:
            topic_named(lane, topic)
        return lane

    def check_settings(self, group: str) -> None:
        """Raise Unavailable if *group* has no lane, but may have settings that are not in use.

        Created without them it would have another order key, and its messages another order.
        """
        if self.find(group) is None and (why := self.unserved(group)):
            raise Unavailable(f"group {_shown(group)} is not served here yet: {why}")

    def named(self, group: str) -> GroupLane:
        """Return the lane of *group* for an operator's command, which creates none. Raises
        UnknownName.
        """
        lane = self._lanes.get(Group(group))
        if lane is None:
            raise self._unknown(group)
        return lane

    def _unknown(self, group: str, hint: str = "") -> UnknownName:
        if Group(group) in self._retired:
            return UnknownName(
                f"there is no group {_shown(group)} any more: it was removed, and its queues are"
                " being handed over"
            )
        known = _listed(self._lanes) or "none yet"
        return UnknownName(f"there is no group {_shown(group)} here; known groups: {known}{hint}")

    def _subscribe(self, group: str, topics: list[str], lane: GroupLane | None) -> GroupLane:
        known: Collection[str] = () if lane is None else lane.topics
        missing = [name for name in topics if name not in known]
        if lane is not None and not (missing and lane.auto_created):
            return lane
        try:
            check_group(group)
            added = tuple(
                TopicSettings(name=Topic(check_name("topic", name)), order_key=AUTO_ORDER_KEY)
                for name in dict.fromkeys(missing)
            )
        except ValueError as error:
            raise UnknownName(str(error)) from None
        if lane is None and len(self._lanes) >= self.max_groups:
            raise Refused(
                f"group {_shown(group)} is not created: this proxy has {len(self._lanes)} groups,"
                " its limits.max_groups; remove unused groups, or raise it"
            )
        if len(known) + len(added) > self.max_group_topics:
            raise Refused(
                f"group {_shown(group)} does not get topic {_shown(added[0].name)}: it has"
                f" {len(known)} topics, and limits.max_group_topics is {self.max_group_topics};"
                " use several groups, or raise it"
            )
        if lane is None:
            lane = self.add(GroupSettings(name=group, topics=added))
            lane.created_on_the_fly()
        else:
            lane.add_topics(added)
        return lane


def topic_named(lane: GroupLane, name: str) -> Topic:
    """Return the topic *name* of the group. Raises NotOfGroup with the group's topics."""
    if name not in lane.topics:
        known = _listed(lane.topics)
        raise NotOfGroup(f"group {lane.name!r} has no topic {_shown(name)}; its topics: {known}")
    return Topic(name)


def member_settings(settings: GroupSettings, name: Group) -> GroupSettings:
    """Return the settings of one client of the broadcast group with *settings*."""
    return settings.model_copy(update={"name": name, "mode": "clustering"})


def _shown(name: str) -> str:
    """Return *name* for an error, shortened: names from clients may be megabytes long."""
    return repr(name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…")


def _listed(names: Iterable[str]) -> str:
    """Return *names* for an error: the first ones if there are very many."""
    rising = sorted(names)
    shown = ", ".join(rising[:_SHOWN_NAMES])
    left_out = len(rising) - _SHOWN_NAMES
    return f"{shown} and {left_out:,} more" if left_out > 0 else shown
