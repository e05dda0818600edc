"""A proxy: the loops of one group's ownership, like those of the shells."""

from __future__ import annotations

from functools import partial

from bench.simulation.brokers import GROUP, TOPIC, Broker
from bench.simulation.events import MS, SECOND, Process, Resume, Wait
from bench.simulation.held_queue import HeldQueue, State
from bench.simulation.links import Links, Surroundings
from bench.simulation.network import NO_ANSWER
from bench.simulation.periods import Periods
from broker_core.names import QueueName
from proxy.core.ownership.group_share import GroupShare, Present
from proxy.core.ownership.named_owners import Handoffs

_LOOK_AGAIN_NS = 200 * MS
_LEAVE_WITHIN_NS = 500 * MS


class Proxy:
    """One process. ``settled``: its last look found nothing to do."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.settled = self.woken = False
        self.links = Links(name, around)
        self._periods = Periods(self.links, around, self.wake)
        self._around = around
        self._events = around.events
        wait_ns = int(around.model.lock.broker_lock_expiry_s * SECOND)
        self._share = GroupShare(name, Handoffs(expect_ns=60 * SECOND, wait_ns=wait_ns))
        self._route: list[QueueName] = []
        self._route_until_ns = 0
        self._misses = False  # a broker is missing
        self._resume: Resume | None = None

    @property
    def owned(self) -> dict[QueueName, HeldQueue]:
        """The queues whose locks it holds."""
        return self._periods.owned

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self.links.dead

    def begin(self) -> None:
        """Start the process, with clients."""
        for loop in (self._balance(), self._periods.renew(), self.links.beats()):
            self._events.start(loop)

    def kill(self) -> None:
        """Kill it with ``kill -9``: its machine closes the connections."""
        self.links.kill()
        self._periods.end()
        for broker in self._around.brokers.values():
            self._events.after(self._around.network.delay_ns(), broker.disconnected, self.name)

    def close(self) -> None:
        """Stop it with ``SIGTERM``."""
        self.links.close()
        self.wake()

    def wake(self) -> None:
        """Look at once, after a change."""
        self.woken = True
        if self._resume is not None:
            resume, self._resume = self._resume, None
            resume(None)

    def notice(self) -> bool:
        """Receive a broker's notice; return True if it arrives and is new: then ``wake`` must
        follow.
        """
        if self.woken or self.links.cut_off or self.dead:
            return False
        self.woken = True
        return True

    def broker_lost(self, broker: str) -> None:
        """Handle the closed connection to *broker*."""
        if not self.dead and broker in self.links.connected:
            self.links.connected.discard(broker)
            self._periods.broker_lost(broker)
            self.wake()

    # ---- the share ------------------------------------------------------------------------------

    def _balance(self) -> Process:
        while not self.dead:
            self.woken = False
            if self.links.closing:
                yield from self._leave()
                return
            self.settled = yield from self._look()
            rest_s, look_s = self._share.next_look_s(settled=self.settled)
            began_ns = self._events.now_ns
            yield self._pause(look_s)
            rest_ns = int(rest_s * SECOND) - (self._events.now_ns - began_ns)
            if rest_ns > 0 and not self.links.closing:
                yield self._events.sleep(rest_ns)

    def _pause(self, seconds: float) -> Wait:
        def begin(resume: Resume) -> None:
            if self.woken:
                resume(None)
                return
            self._resume = resume
            self._events.after(int(seconds * SECOND), over, resume)

        def over(resume: Resume) -> None:
            if self._resume is resume:
                self._resume = None
                resume(None)

        return begin

    def _look(self) -> Process:
        yield from self.links.beat(unheard_only=True)
        members = yield from self._members()
        yield self.links.work(self._around.model.costs.look_ns)
        if self.links.dead:
            return False
        self._share.begin_look([TOPIC])
        if members is None:
            self._share.cannot_say(TOPIC, self.owned)
        elif not self._share.look_at(
            TOPIC,
            Present(members),
            queues=self._queues(),
            owned=self.owned,
            now_ns=self._events.now_ns,
        ):
            self.links.heard.clear()
        taking = sum(held.state is State.ACQUIRING for held in self.owned.values())
        moves = self._share.moves(owned=self.owned.keys(), taking=taking)
        for queue in moves.hand_over:
            self._periods.hand_over(self.owned[queue])
        yield self._events.all_of(
            self._periods.lock(self._around.brokers[broker], queues)
            for broker, queues in moves.ask.items()
        )
        sure = all(held.is_sure for held in self.owned.values())
        return sure and self._share.settled(owned=self.owned.keys())

    def _queues(self) -> list[QueueName]:
        """Return the queues of the route at its last refresh."""
        now_ns, model = self._events.now_ns, self._around.model
        if self._route_until_ns <= now_ns:
            refresh_ns, before = model.route_refresh_ns, self._route
            self._route = self._around.route
            if len(self._route) < len(before) or self._misses:
                self._misses = len(self._route) < model.queues
            if self._misses:
                refresh_ns = model.missed_refresh_ns
            elif not self._route_until_ns:
                refresh_ns = self._around.chance.randrange(refresh_ns)
            self._route_until_ns = now_ns + refresh_ns
        return self._route

    def _members(self) -> Process:
        """Return the members as the first answering broker lists them.

        Which members want the topic is asked too: all do, at the same cost.
        """
        costs = self._around.model.costs
        for broker in self._around.brokers.values():
            known = broker.groups.find(GROUP)
            listed_ns = costs.listed_member_ns * (len(known.members) - 1 if known else 0)
            cost_ns = costs.list_ns + listed_ns
            answer = yield self.links.ask(broker, "members", broker.members, cost_ns=cost_ns)
            if answer is NO_ANSWER:
                continue
            if len(answer) > 1:
                yield self.links.ask(broker, "signs", broker.members, cost_ns=cost_ns)
            return answer
        return None

    def _leave(self) -> Process:
        for held in list(self.owned.values()):
            self._periods.hand_over(held)
        yield self._events.sleep(_LEAVE_WITHIN_NS)
        yield self._events.all_of(
            self._unregister(broker) for broker in self._around.brokers.values()
        )
        while self.owned:
            yield self._events.sleep(_LOOK_AGAIN_NS)
        self.kill()

    def _unregister(self, broker: Broker) -> Process:
        yield self.links.ask(broker, "unregister", partial(broker.unregister, self.name))
