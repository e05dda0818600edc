"""Which queues of a group one of its members goes for, and which it gives up. Pure.

A member looks at routes and members now and then, and after each notice of a broker. What it does
after a look is decided here, topic by topic: whom it counts (``steady_members``), what its share is
(``allocation``, ``handoffs``), what it asks the locks of, what it hands over. Times are ns.

1. Queues of a topic are shared by the members that *want* it. One that does not want it hands its
   queues over, but for those of which its clients hold something: these when that is settled.
2. While nobody wants a topic, its queues stay where they are, and those that nobody has are shared
   by all members. So whoever wants it next finds it read, and no change of demand moves it twice.
3. *Strangers*, members that do not say what they want, keep the share that averaging over all
   members gives them, of the topics that they subscribe: they compute it so themselves.
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

#: Seconds between two looks at members and routes; notices of brokers come in between.
SETTLED_S, UNSETTLED_S = 5.0, 0.5
#: Seconds between two looks in any case, for each member of the group.
_REST_S = 0.001
#: So many queues are taken over at a time: the first members of many to come would else take
#: everything, and be busy with it for long, only to hand it over to the next.
_AT_ONCE = 256
#: Whoever joins counts after so long.
_STEADY_NS = 1_000_000_000


class Present(NamedTuple):
    """Who is there for one topic. ``wanting``: the members that want it, None if all do;
    ``strangers``: those that say nothing of what they want, and whether they subscribe the topic.
    """

    members: Collection[str]
    wanting: Collection[str] | None = None
    strangers: Mapping[str, bool] = MappingProxyType({})

    @property
    def takers(self) -> Collection[str]:
        """The members that may own queues of the topic for long."""
        if not self.wanting:
            return self.members
        return {*self.wanting, *self.subscribers}

    @property
    def subscribers(self) -> list[str]:
        """The strangers that take their share of the topic."""
        return [each for each, subscribes in self.strangers.items() if subscribes]


@dataclass(frozen=True, slots=True)
class Moves:
    """What to do after a look. *ask*: of which queues to ask the lock, by broker."""

    ask: dict[str, set[QueueName]]
    hand_over: set[QueueName]


@dataclass(slots=True)
class _Steady:
    """Whom to count for one topic."""

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
    #: What it is to own, by the last look at each topic.
    share: set[QueueName] = field(default_factory=set)
    #: What it takes beside if nobody else has it: queues of topics that nobody wants.
    spare: set[QueueName] = field(default_factory=set)
    _steady: dict[Topic, _Steady] = field(default_factory=dict)
    _unsaid: bool = False
    _listed: int = 0  # how many members there are
    _asked_last: QueueName | None = None  # where the turn of those that are too many stands

    def begin_look(self, topics: Collection[Topic]) -> None:
        """The group's topics are these; ``look_at`` each of them follows, then ``moves``."""
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
        """*topic* has *queues*, which rise, and brokers list those *present*. *owned*: of any
        topic, and of them *leased* those of which clients hold something.

        False if this member is not listed: then it keeps what it has.
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
        if steady.members.watches(now_ns) or (wanting and not takers):  # somebody just came
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
        """The part of *queues* that is this member's among *takers*, with what people gave."""
        return self.handoffs.share(
            allocate(self.member, takers, queues),
            queues=queues,
            owned=owned,
            members=takers,
            now_ns=now_ns,
        )

    def cannot_say(self, topic: Topic, owned: Iterable[QueueName]) -> None:
        """What the share of *topic* is cannot be said now: what is *owned* is kept."""
        self._unsaid = True
        self.share.update(queue for queue in owned if queue.topic == topic)

    def moves(
        self, *, owned: Set[QueueName], taking: int = 0, refused: Collection[QueueName] = ()
    ) -> Moves:
        """All topics were looked at. *taking*: how many queues are being taken over already;
        *refused*: which are left alone for now.
        """
        ask: defaultdict[str, set[QueueName]] = defaultdict(set)
        missing = (self.share | self.spare) - owned - set(refused)
        room = max(0, _AT_ONCE - taking)
        if len(missing) > room:
            # In turn, or those that others keep would hold up all behind them.
            rising = sorted(missing)
            begin = 0 if self._asked_last is None else bisect_right(rising, self._asked_last)
            missing = set((rising[begin:] + rising[:begin])[:room])
            if room:
                self._asked_last = rising[(begin + room - 1) % len(rising)]
        for queue in sorted(missing):
            ask[queue.broker].add(queue)
        return Moves(ask, set(owned - self.share))

    def settled(self, *, owned: Set[QueueName]) -> bool:
        """True if after the last look nothing was to come: a member, a queue, somebody who was
        given one by name.
        """
        steady = all(each.settled for each in self._steady.values())
        return not self._unsaid and steady and not self.handoffs.awaits and owned == self.share

    def next_look_s(self, *, settled: bool) -> tuple[float, float]:
        """Seconds to rest after a look, whatever comes, and those until the next if nothing does.

        The more members there are, the longer: all of them look at whatever changes, and each
        change is told to each of them. A thousand make a thousand looks a second at most.
        """
        rest_s = self._listed * _REST_S
        return rest_s, max(SETTLED_S if settled else UNSETTLED_S, rest_s)

    def leave(self) -> None:
        """The group is left."""
        self._steady.clear()
        self.handoffs.forget()
        self.share, self.spare = set(), set()


def _of_strangers(
    strangers: Collection[str], members: Sequence[str], queues: Sequence[QueueName]
) -> set[QueueName]:
    """Those of *queues* that averaging over *members* gives to *strangers* among them."""
    return {
        queue
        for stranger in strangers
        if stranger in members
        for queue in allocate(stranger, members, queues)
    }
