"""Queues of a group that one member acquires, and those that it gives up. Pure.

A member checks routes and members periodically, and after each notice of a broker. This module
decides, topic by topic, what to do afterwards: the members that count (``steady_members``), its
share (``allocation``, ``named_owners``), the locks to request, the queues to hand over. Times are
ns.

1. Queues of a topic are shared by the members that *want* it. A member that does not want it hands
   its queues over; those with leases follow when the leases are settled.
2. While no member wants a topic, its queues stay where they are, and unowned ones are shared by all
   members. So the next member that wants it finds it read, and no change of demand moves it twice.
3. *Strangers*, members that do not announce their wishes, keep the share that averaging over all
   members gives them, for topics that they subscribe: they compute it so themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from broker_core.names import QueueName, Topic
from proxy.core.ownership.allocation import allocate
from proxy.core.ownership.named_owners import Handoffs
from proxy.core.ownership.steady_members import SteadyMembers

#: Seconds between two checks of members and routes; broker notices add checks in between.
SETTLED_S, UNSETTLED_S = 5.0, 0.5
#: Least seconds between two checks, for each member of the group.
_REST_S = 0.001
#: Most queues taken over at a time: otherwise the first of many starting members would take all,
#: only to hand most of them over.
_AT_ONCE = 256
#: Time after which a new member counts.
_STEADY_NS = 1_000_000_000


class Present(NamedTuple):
    """Members present for one topic. ``wanting``: those that want it, None if all do;
    ``strangers``: those that do not announce their wishes, and whether they subscribe the topic.
    """

    members: Collection[str]
    wanting: Collection[str] | None = None
    strangers: Mapping[str, bool] = MappingProxyType({})

    @property
    def takers(self) -> Collection[str]:
        """Members that may own queues of the topic permanently."""
        if not self.wanting:
            return self.members
        return {*self.wanting, *self.subscribers}

    def takers_besides(self, member: str) -> set[str]:
        """Return the members other than *member* that want the topic, or take their share of it."""
        return {*(self.wanting or ()), *self.subscribers} - {member}

    @property
    def subscribers(self) -> list[str]:
        """Strangers that take their share of the topic."""
        return [each for each, subscribes in self.strangers.items() if subscribes]


@dataclass(frozen=True, slots=True)
class Moves:
    """Result of a check. *ask*: queues whose locks to request, by broker."""

    ask: dict[str, set[QueueName]]
    hand_over: set[QueueName]


@dataclass(slots=True)
class _Steady:
    """Members that count for one topic."""

    members: SteadyMembers = field(default_factory=lambda: SteadyMembers(settle_ns=_STEADY_NS))
    wanting: SteadyMembers = field(default_factory=lambda: SteadyMembers(settle_ns=_STEADY_NS))

    @property
    def settled(self) -> bool:
        return self.members.settled and self.wanting.settled


@dataclass(slots=True)
class GroupShare:
    """The share of *member* in one group, topic by topic."""

    member: str
    handoffs: Handoffs
    #: Queues that it should own, according to the last check of each topic.
    share: set[QueueName] = field(default_factory=set)
    #: Queues of unwanted topics that it takes in addition if they are unowned.
    spare: set[QueueName] = field(default_factory=set)
    _steady: dict[Topic, _Steady] = field(default_factory=dict)
    _unsaid: bool = False
    _listed: int = 0  # number of members
    _asked_last: QueueName | None = None  # last queue requested, when requests take turns

    def begin_look(self, topics: Collection[Topic]) -> None:
        """Begin a check of *topics*, all topics of the group; ``look_at`` each, then call
        ``moves``.
        """
        for gone in self._steady.keys() - set(topics):
            del self._steady[gone]
        self.share, self.spare, self._unsaid, self._listed = set(), set(), False, 0

    def look_at(
        self,
        topic: Topic,
        present: Present,
        *,
        queues: Sequence[QueueName],
        owned: Collection[QueueName],
        leased: Collection[QueueName] = (),
        now_ns: int,
    ) -> bool:
        """Check one topic. Return False if this member is not listed: then it keeps its queues.

        Args:
            topic: one of those of ``begin_look``.
            present: the members that brokers list.
            queues: all queues of the topic, rising.
            owned: this member's queues of any topic.
            leased: those of them with leases.
            now_ns: the current time.
        """
        members = present.members
        self._listed = max(self._listed, len(members))
        if self.member not in members:
            self.cannot_say(topic, owned)
            return False
        steady = self._steady.setdefault(topic, _Steady())
        counted = steady.members.counted(members, own=self.member, now_ns=now_ns)
        wanting = members if present.wanting is None else present.wanting
        takers = steady.wanting.counted(wanting, own=self.member, now_ns=now_ns)
        if steady.members.watches(now_ns) or (wanting and not takers):  # a member has just joined
            self.cannot_say(topic, owned)
            return True
        left = _of_strangers(present.subscribers, counted, queues)
        ours = [queue for queue in queues if queue not in left] if left else queues
        if self.member in wanting:
            self.share.update(self._fair(takers, ours, owned, now_ns=now_ns))
            return True
        here = {queue for queue in owned if queue.topic == topic} - left
        if not wanting:
            proxies = [each for each in counted if each not in present.strangers]
            self.share.update(here)
            self.spare.update(self._fair(proxies, ours, owned, now_ns=now_ns))
            self.spare -= here
            return True
        self.handoffs.expect_none(queues)
        if kept := here.intersection(leased):
            self.share.update(kept)
            self._unsaid = True  # they are handed over soon
        return True

    def _fair(
        self,
        takers: Sequence[str],
        queues: Sequence[QueueName],
        owned: Collection[QueueName],
        *,
        now_ns: int,
    ) -> list[QueueName]:
        """Return this member's part of *queues* among *takers*, including assignments by name."""
        return self.handoffs.share(
            allocate(self.member, takers, queues),
            queues=queues,
            owned=owned,
            members=takers,
            now_ns=now_ns,
        )

    def cannot_say(self, topic: Topic, owned: Iterable[QueueName]) -> None:
        """Keep the *owned* queues of *topic*, because its share is unknown now."""
        self._unsaid = True
        self.share.update(queue for queue in owned if queue.topic == topic)

    def moves(
        self, *, owned: Set[QueueName], taking: int = 0, refused: Collection[QueueName] = ()
    ) -> Moves:
        """Return the moves after all topics were checked. *taking*: number of take-overs under way;
        *refused*: queues to leave alone for now.
        """
        ask: defaultdict[str, set[QueueName]] = defaultdict(set)
        missing = (self.share | self.spare) - owned - set(refused)
        room = max(0, _AT_ONCE - taking)
        if len(missing) > room:
            # In turn; otherwise queues kept by others would delay all behind them.
            rising = sorted(missing)
            begin = 0 if self._asked_last is None else bisect_right(rising, self._asked_last)
            missing = set((rising[begin:] + rising[:begin])[:room])
            if room:
                self._asked_last = rising[(begin + room - 1) % len(rising)]
        for queue in sorted(missing):
            ask[queue.broker].add(queue)
        return Moves(ask, set(owned - self.share))

    def settled(self, *, owned: Set[QueueName]) -> bool:
        """Return True if the last check left nothing open: no new member, no missing queue, no
        pending assignment by name.
        """
        steady = all(each.settled for each in self._steady.values())
        return not self._unsaid and steady and not self.handoffs.awaits and owned == self.share

    @property
    def is_alone(self) -> bool:
        """Whether the last check found no other member."""
        return self._listed <= 1

    def next_look_s(self, *, settled: bool) -> tuple[float, float]:
        """Return the least seconds until the next check, and those until it without any notice.

        More members mean more time, because all of them check after each change. A thousand members
        make at most a thousand checks per second.
        """
        rest_s = self._listed * _REST_S
        return rest_s, max(SETTLED_S if settled else UNSETTLED_S, rest_s)

    def leave(self) -> None:
        """Leave the group."""
        self._steady.clear()
        self.handoffs.forget()
        self.share, self.spare = set(), set()


def _of_strangers(
    strangers: Collection[str], members: Sequence[str], queues: Sequence[QueueName]
) -> set[QueueName]:
    """Return those of *queues* that averaging over *members* gives to *strangers* among them."""
    return {
        queue
        for stranger in strangers
        if stranger in members
        for queue in allocate(stranger, members, queues)
    }
