"""Which queues of a group one of its members goes for, and which it gives up. Pure.

A member looks at routes and members now and then, and after each notice of a broker. What it does
after a look is decided here: whom it counts (``steady_members``), what its share is
(``allocation``, ``handoffs``), what it asks the locks of, what it hands over. Times are ns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field

from broker_core.names import QueueName, Topic
from proxy.core.allocation import allocate
from proxy.core.handoffs import Handoffs
from proxy.core.steady_members import SteadyMembers

#: Seconds between two looks at members and routes; notices of brokers come in between.
SETTLED_S, UNSETTLED_S = 5.0, 0.5
#: Seconds between two looks in any case, for each member of the group.
_REST_S = 0.001
#: So many queues are taken over at a time: the first members of many to come would else take
#: everything, and be busy with it for long, only to hand it over to the next.
_AT_ONCE = 256
#: Whoever joins counts after so long.
_STEADY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Moves:
    """What to do after a look. *ask*: of which queues to ask the lock, by broker."""

    ask: dict[str, set[QueueName]]
    hand_over: set[QueueName]


@dataclass(slots=True)
class GroupShare:
    """The share of *member* in one group, topic by topic."""

    member: str
    handoffs: Handoffs
    #: What it is to own, by the last look at each topic.
    share: set[QueueName] = field(default_factory=set)
    _members: dict[Topic, SteadyMembers] = field(default_factory=dict)
    _unsaid: bool = False
    _listed: int = 0  # how many members there are
    _asked_last: QueueName | None = None  # where the turn of those that are too many stands

    def begin_look(self, topics: Collection[Topic]) -> None:
        """The group's topics are these; ``look_at`` each of them follows, then ``moves``."""
        for gone in self._members.keys() - set(topics):
            del self._members[gone]
        self.share, self._unsaid, self._listed = set(), False, 0

    def look_at(
        self,
        topic: Topic,
        *,
        queues: Sequence[QueueName],
        members: Collection[str],
        owned: Collection[QueueName],
        now_ns: int,
    ) -> bool:
        """*topic* has *queues*, which rise, and the broker lists *members*. *owned*: of any topic.

        False if this member is not among them: then it keeps what it has.
        """
        self._listed = max(self._listed, len(members))
        if self.member not in members:
            self.cannot_say(topic, owned)
            return False
        steady = self._members.setdefault(topic, SteadyMembers(settle_ns=_STEADY_NS))
        counted = steady.counted(members, own=self.member, now_ns=now_ns)
        if steady.watches(now_ns):
            self.cannot_say(topic, owned)
            return True
        self.share.update(
            self.handoffs.share(
                allocate(self.member, counted, queues),
                queues=queues,
                owned=owned,
                members=counted,
                now_ns=now_ns,
            )
        )
        return True

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
        missing = self.share - owned - set(refused)
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
        steady = all(members.settled for members in self._members.values())
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
        self._members.clear()
        self.handoffs.forget()
        self.share = set()
