"""A proxy: the loops of one group's ownership, as the shells have them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from bench.simulation.brokers import TOPIC, Broker
from bench.simulation.events import MS, SECOND, Events, Process, Resume, Turns, Wait
from bench.simulation.held import Held, State
from bench.simulation.judge import Judge
from bench.simulation.model import Model
from bench.simulation.network import NO_ANSWER, Network
from broker_core.names import QueueName
from proxy.core.group_share import GroupShare
from proxy.core.handoffs import Handoffs
from proxy.core.ownership_record import Own
from proxy.core.period_wait import longest_ns, wait_ns
from proxy.core.trust import Trust

_REQUEST_NS = 3 * SECOND
_LOOK_AGAIN_NS = 200 * MS
#: Requests that a take-over needs besides the record: the broker's start, the two ends of the
#: records, the last of them, the committed offset, the ends of the queue.
_TAKE_OVER_ASKS = 7


class Proxy:
    """*route*: what a nameserver says now."""

    def __init__(
        self,
        name: str,
        *,
        model: Model,
        events: Events,
        network: Network,
        brokers: dict[str, Broker],
        judge: Judge,
        route: Callable[[], list[QueueName]],
        chance: random.Random,
    ) -> None:
        self.name = name
        self.dead = self.cut_off = self.settled = False
        self.owned: dict[QueueName, Held] = {}
        self._model, self._events, self._network = model, events, network
        self._brokers, self._judge, self._chance = brokers, judge, chance
        self._nameserver = route
        self._route: list[QueueName] = []
        self._route_until_ns = 0
        lock = model.lock
        self._trust_ns = int(lock.trust_s * SECOND)
        self._timeout_ns = int(lock.request_timeout_s * SECOND)
        self._heartbeat_ns = int(min(10.0, lock.broker_lock_expiry_s / 3) * SECOND)
        handoffs = Handoffs(expect_ns=60 * SECOND, wait_ns=int(lock.broker_lock_expiry_s * SECOND))
        self._share = GroupShare(name, handoffs)
        self._turns: defaultdict[str, Turns] = defaultdict(Turns)
        self._busy_until_ns = 0
        self._closing = self.woken = False
        self._resume: Resume | None = None
        self._connected: set[str] = set()
        self._heard: set[str] = set()
        self._beats_woken = False

    def begin(self) -> None:
        """The process is up, and has clients."""
        self._events.start(self._balance())
        self._events.start(self._renew())
        self._events.start(self._beat())

    def kill(self) -> None:
        """``kill -9``: its connections are closed by its machine."""
        self.dead = True
        now_ns = self._events.now_ns
        for queue in self.owned:
            self._judge.gave_up(queue, self.name, now_ns)
        self.owned.clear()
        for broker in self._brokers.values():
            self._events.after(self._network.delay_ns(), broker.disconnected, self.name)

    def close(self) -> None:
        """``SIGTERM``."""
        self._closing = True
        self.wake()

    def wake(self) -> None:
        """Something changed."""
        self.woken = True
        if self._resume is not None:
            resume, self._resume = self._resume, None
            resume(None)

    def broker_lost(self, broker: str) -> None:
        """The connection to *broker* ended."""
        if self.dead or broker not in self._connected:
            return
        self._connected.discard(broker)
        for queue, held in self.owned.items():
            if queue.broker == broker:
                held.trust.connection_lost()
                self._judge.stopped(queue, self.name, self._events.now_ns)
        self.wake()

    # ---- the share ------------------------------------------------------------------------------

    def _balance(self) -> Process:
        while not self.dead:
            self.woken = False
            if self._closing:
                yield from self._leave()
                return
            self.settled = yield from self._look()
            if self.dead:
                return
            rest_s, look_s = self._share.next_look_s(settled=self.settled)
            began_ns = self._events.now_ns
            yield self._pause(look_s)
            rest_ns = int(rest_s * SECOND) - (self._events.now_ns - began_ns)
            if rest_ns > 0 and not self._closing:
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
        yield from self._beat_once(unheard_only=True)
        members = yield from self._members()
        yield self._work(self._model.costs.look_ns)
        if self.dead:
            return False
        now_ns = self._events.now_ns
        self._share.begin_look([TOPIC])
        if members is None:
            self._share.cannot_say(TOPIC, self.owned)
        else:
            if not self._share.look_at(
                TOPIC, queues=self._queues(), members=members, owned=self.owned, now_ns=now_ns
            ):
                self._heard.clear()
        taking = sum(held.state is State.ACQUIRING for held in self.owned.values())
        moves = self._share.moves(owned=self.owned.keys(), taking=taking)
        for queue in moves.hand_over:
            self._hand_over(self.owned[queue])
        yield self._events.all_of(
            self._lock(self._brokers[broker], queues) for broker, queues in moves.ask.items()
        )
        sure = all(held.is_sure for held in self.owned.values())
        now_ns = self._events.now_ns
        return sure and self._share.settled(owned=self.owned.keys(), now_ns=now_ns)

    def _queues(self) -> list[QueueName]:
        if self._route_until_ns <= self._events.now_ns:
            self._route = self._nameserver()
            refresh_ns = self._model.route_refresh_ns
            first = not self._route_until_ns
            self._route_until_ns = self._events.now_ns + (
                self._chance.randrange(refresh_ns) if first else refresh_ns
            )
        return self._route

    def _members(self) -> Process:
        for broker in self._brokers.values():
            answer = yield self._ask(
                broker, "members", broker.members, cost_ns=self._list_ns(broker)
            )
            if answer is not NO_ANSWER:
                return answer
        return None

    def _list_ns(self, broker: Broker) -> int:
        costs = self._model.costs
        return costs.request_ns + costs.listed_member_ns * self._model.proxies

    def _lock(self, broker: Broker, queues: Collection[QueueName]) -> Process:
        turns = self._turns[broker.name]
        yield turns.take()
        before_ns = self._events.now_ns
        granted = yield self._ask_locks(broker, queues)
        turns.give_back()
        if granted is NO_ANSWER or self.dead:
            return
        now_ns = self._events.now_ns
        taken = []
        for queue in granted:
            held = Held(queue, Trust(before_ns + self._trust_ns))
            self.owned[queue] = held
            taken.append(held)
            self._judge.trusted(queue, self.name, until_ns=held.trust.until_ns, now_ns=now_ns)
        if taken:
            self._events.start(self._take_over(broker, taken))

    def _leave(self) -> Process:
        for held in list(self.owned.values()):
            self._hand_over(held)
        yield self._events.sleep(500 * MS)
        yield self._events.all_of(
            self._told(self._ask(each, "unregister", partial(each.unregister, self.name)))
            for each in self._brokers.values()
        )
        while self.owned:
            yield self._events.sleep(_LOOK_AGAIN_NS)
        self.kill()

    def _told(self, wait: Wait) -> Process:
        return (yield wait)

    # ---- one queue ------------------------------------------------------------------------------

    def _take_over(self, broker: Broker, taken: list[Held]) -> Process:
        """All that were granted at once go through it side by side."""
        costs, model = self._model.costs, self._model
        asked = [held.queue for held in taken]
        found = yield self._ask(
            broker,
            "take over",
            partial(broker.last, asked),
            times=_TAKE_OVER_ASKS * len(asked),
            cost_ns=costs.request_ns,
        )
        yield self._work(costs.take_over_ns * len(taken))
        taken = [held for held in taken if held.state is State.ACQUIRING]
        if found is NO_ANSWER or self.dead:
            yield from self._give_back(broker, taken)
            return
        now_ns, expiry_s = self._events.now_ns, model.lock.broker_lock_expiry_s
        owns = {}
        for held in taken:
            last, end = found[held.queue]
            owns[held.queue] = own = self._own_record(broker, end)
            wait = wait_ns(own, last, end=end, broker_lock_expiry_s=expiry_s)
            held.hold_until_ns = now_ns + wait
        epochs = yield self._ask(
            broker, "own", partial(broker.own, owns), times=len(owns), cost_ns=costs.request_ns
        )
        taken = [held for held in taken if held.state is State.ACQUIRING]
        if epochs is NO_ANSWER or self.dead:
            yield from self._give_back(broker, taken)
            return
        now_ns = self._events.now_ns
        for held in taken:
            held.epoch = epochs[held.queue]
            if held.epoch != found[held.queue][1]:  # somebody wrote after we had read
                held.hold_until_ns = now_ns + longest_ns(owns[held.queue])
            self._judge.period(held.queue, held.epoch, now_ns)
            held.state = State.OWNED
            self._serve(held)

    def _own_record(self, broker: Broker, end: int) -> Own:
        return Own(
            owner=self.name,
            trust_ms=int(self._model.lock.trust_s * 1000),
            longest_lease_ms=self._model.lease_ms,
            broker_start_ms=broker.started_ms,
            period=end + 1,
        )

    def _serve(self, held: Held) -> None:
        """Messages are handed out from now on, or once leases of before have ended."""
        if self.dead or held.state is not State.OWNED or held.checking:
            return
        now_ns = self._events.now_ns
        if now_ns < held.hold_until_ns:
            self._events.after(held.hold_until_ns - now_ns, self._serve, held)
        elif held.trust.holds(now_ns):
            until_ns = held.trust.until_ns
            self._judge.served(held.queue, self.name, until_ns=until_ns, now_ns=now_ns)

    def _hand_over(self, held: Held) -> None:
        if held.state is State.OWNED:
            held.state = State.HANDING_OVER
            self._judge.stopped(held.queue, self.name, self._events.now_ns)
            self._events.start(self._handing_over(held))

    def _handing_over(self, held: Held) -> Process:
        broker = self._brokers[held.queue.broker]
        yield self._events.sleep(int(self._chance.random() * self._model.work_s * SECOND))
        if held.state is not State.HANDING_OVER or self.dead:
            return
        end = partial(broker.end, held.queue, held.epoch)
        yield self._ask(broker, "end", end, times=3)  # a commit and two records
        if held.state is State.HANDING_OVER:
            yield from self._give_back(broker, [held])

    def _give_back(self, broker: Broker, given: Iterable[Held]) -> Process:
        for held in given:
            held.state = State.UNLOCKING
            self._judge.gave_up(held.queue, self.name, self._events.now_ns)
            turns = self._turns[broker.name]
            yield turns.take()
            yield self._ask(
                broker,
                "unlock",
                partial(broker.unlock, self.name, [held.queue]),
                timeout_ns=self._timeout_ns,
            )
            turns.give_back()
            self._forget(held)

    def _forget(self, held: Held) -> None:
        held.state = State.GONE
        if self.owned.get(held.queue) is held:
            del self.owned[held.queue]

    def _lose(self, held: Held) -> None:
        self._judge.gave_up(held.queue, self.name, self._events.now_ns)
        self._forget(held)

    # ---- renewal --------------------------------------------------------------------------------

    def _renew(self) -> Process:
        while not self.dead:
            yield self._events.sleep(int(self._model.lock.renewal_s * SECOND))
            if self.dead:
                return
            names = sorted({queue.broker for queue in self.owned})
            yield self._events.all_of(self._renew_at(self._brokers[name]) for name in names)

    def _renew_at(self, broker: Broker) -> Process:
        turns = self._turns[broker.name]
        yield turns.take()
        live = (State.ACQUIRING, State.OWNED, State.HANDING_OVER)
        held = {
            queue: each
            for queue, each in self.owned.items()
            if queue.broker == broker.name and each.state in live
        }
        if not held:
            turns.give_back()
            return
        before_ns = self._events.now_ns
        granted = yield self._ask_locks(broker, held)
        turns.give_back()
        if granted is NO_ANSWER or self.dead:
            return
        now_ns, until_ns = self._events.now_ns, before_ns + self._trust_ns
        doubted = []
        for queue, each in held.items():
            if each.state not in live:
                continue
            if queue not in granted:
                self._lose(each)
                self.wake()
                continue
            each.trust.granted(until_ns, now_ns=now_ns)
            self._judge.trusted(queue, self.name, until_ns=until_ns, now_ns=now_ns)
            if each.epoch < 0:
                continue
            if each.trust.doubtful:
                each.trust.cleared()
                each.checking = True
                doubted.append(each)
            elif each.state is State.OWNED:
                self._serve(each)
        if doubted:
            self._events.start(self._check(broker, doubted))

    def _check(self, broker: Broker, doubted: list[Held]) -> Process:
        """After a lapse: trust the lock again if nobody owned the queue meanwhile."""
        asked = [held.queue for held in doubted]
        while True:
            found = yield self._ask(
                broker, "take over", partial(broker.last, asked), times=3 * len(asked)
            )
            if found is not NO_ANSWER or self.dead:
                break
            yield self._events.sleep(_LOOK_AGAIN_NS)
        if self.dead:
            return
        for held in doubted:
            held.checking = False
            last, _ = found[held.queue]
            if held.state is not State.OWNED:
                continue
            if last is None or (last.epoch, last.own.owner) != (held.epoch, self.name):
                self._lose(held)
                self.wake()
            else:
                self._serve(held)

    # ---- membership -----------------------------------------------------------------------------

    def _beat(self) -> Process:
        while not self.dead and not self._closing:
            yield self._events.sleep(self._heartbeat_ns)
            if not self.dead and not self._closing:
                yield from self._beat_once()

    def _beat_once(self, *, unheard_only: bool = False) -> Process:
        yield self._events.all_of(
            self._beat_at(each)
            for each in self._brokers.values()
            if not (unheard_only and each.name in self._heard)
        )

    def _beat_at(self, broker: Broker) -> Process:
        answer = yield self._ask(broker, "heartbeat", partial(broker.heartbeat, self.name))
        if answer is NO_ANSWER:
            self._heard.discard(broker.name)
        else:
            self._heard.add(broker.name)

    # ---- inside ---------------------------------------------------------------------------------

    def _ask_locks(self, broker: Broker, queues: Collection[QueueName]) -> Wait:
        costs = self._model.costs
        return self._ask(
            broker,
            "lock",
            partial(broker.lock, self.name, list(queues)),
            cost_ns=costs.request_ns + costs.locked_queue_ns * len(queues),
            timeout_ns=self._timeout_ns,
        )

    def _ask(
        self,
        broker: Broker,
        kind: str,
        do: Callable[[], tuple[Any, int]],
        *,
        times: int = 1,
        cost_ns: int | None = None,
        timeout_ns: int = _REQUEST_NS,
    ) -> Wait:
        ask = self._network.ask(
            self,
            broker.server,
            kind,
            cost_ns=self._model.costs.request_ns if cost_ns is None else cost_ns,
            timeout_ns=timeout_ns,
            do=do,
            times=times,
        )

        def begin(resume: Resume) -> None:
            ask(lambda answer: answered(resume, answer))

        def answered(resume: Resume, answer: Any) -> None:
            if answer is not NO_ANSWER and broker.name not in self._connected:
                self._connected.add(broker.name)
                self._events.after(0, self._connected_to, broker)
            resume(answer)

        return begin

    def _connected_to(self, broker: Broker) -> None:
        """A new connection: its broker may have forgotten this member, and all are told."""
        self._heard.clear()
        if not self._beats_woken:
            self._beats_woken = True
            self._events.after(0, self._beat_again)

    def _beat_again(self) -> None:
        self._beats_woken = False
        if not self.dead and not self._closing:
            self._events.start(self._beat_once())

    def _work(self, cost_ns: int) -> Wait:
        now_ns = self._events.now_ns
        self._busy_until_ns = max(self._busy_until_ns, now_ns) + cost_ns
        return self._events.sleep(self._busy_until_ns - now_ns)
