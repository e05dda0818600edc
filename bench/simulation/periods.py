"""Ownership periods of one proxy: take-over, renewal, hand-over, loss."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from bench.simulation.brokers import Broker
from bench.simulation.events import MS, SECOND, Process
from bench.simulation.held_queue import HeldQueue, State
from bench.simulation.links import Links, Surroundings
from bench.simulation.network import NO_ANSWER
from broker_core.names import QueueName
from proxy.core.ownership.trust import Trust
from proxy.core.records.period_wait import longest_ns, wait_ns
from proxy.core.records.record import Own

_LOOK_AGAIN_NS = 200 * MS
#: Requests of a take-over besides the record: the broker's start, the two ends of the records, the
#: last of them, the committed offset, the ends of the queue.
_TAKE_OVER_ASKS = 7
_LIVE = (State.ACQUIRING, State.OWNED, State.HANDING_OVER)


class Periods:
    """The queues of one proxy. *wake*: called when a queue was lost."""

    def __init__(self, links: Links, around: Surroundings, wake: Callable[[], None]) -> None:
        self.owned: dict[QueueName, HeldQueue] = {}
        self._links, self._around, self._wake = links, around, wake
        self._events = around.events
        self._trust_ns = int(around.model.lock.trust_s * SECOND)
        self._timeout_ns = int(around.model.lock.request_timeout_s * SECOND)

    def end(self) -> None:
        """End with the process."""
        for queue in self.owned:
            self._around.judge.gave_up(queue, self._links.name, self._events.now_ns)
        self.owned.clear()

    def broker_lost(self, broker: str) -> None:
        """Handle the closed connection to *broker*."""
        for queue, held in self.owned.items():
            if queue.broker == broker:
                held.trust.connection_lost()
                self._around.judge.stopped(queue, self._links.name, self._events.now_ns)

    def lock(self, broker: Broker, queues: Collection[QueueName]) -> Process:
        """Request their locks, and take over the granted ones."""
        turns = self._links.turns[broker.name]
        yield turns.take()
        before_ns = self._events.now_ns
        granted = yield self._links.ask_locks(broker, queues)
        turns.give_back()
        if granted is NO_ANSWER or self._links.dead:
            return
        now_ns = self._events.now_ns
        taken = []
        for queue in granted:
            held = HeldQueue(queue, Trust(before_ns + self._trust_ns))
            self.owned[queue] = held
            taken.append(held)
            self._around.judge.trusted(
                queue, self._links.name, until_ns=held.trust.until_ns, now_ns=now_ns
            )
        if taken:
            self._events.start(self._take_over(broker, taken))

    # ---- one queue ------------------------------------------------------------------------------

    def _take_over(self, broker: Broker, taken: list[HeldQueue]) -> Process:
        """Take over all queues granted together, in parallel."""
        costs, model = self._around.model.costs, self._around.model
        asked = [held.queue for held in taken]
        found = yield self._links.ask(
            broker,
            "take over",
            partial(broker.last, asked),
            times=_TAKE_OVER_ASKS * len(asked),
        )
        yield self._links.work(costs.take_over_ns * len(taken))
        taken = [held for held in taken if held.state is State.ACQUIRING]
        if found is NO_ANSWER or self._links.dead:
            yield from self._give_back(broker, taken)
            return
        now_ns, expiry_s = self._events.now_ns, model.lock.broker_lock_expiry_s
        owns = {}
        for held in taken:
            last, end = found[held.queue]
            owns[held.queue] = own = self._own_record(broker, end)
            wait = wait_ns(own, last, end=end, broker_lock_expiry_s=expiry_s)
            held.hold_until(now_ns + wait)
        epochs = yield self._links.ask(
            broker, "own", partial(broker.own, owns), times=len(owns), cost_ns=costs.record_ns
        )
        taken = [held for held in taken if held.state is State.ACQUIRING]
        if epochs is NO_ANSWER or self._links.dead:
            yield from self._give_back(broker, taken)
            return
        now_ns = self._events.now_ns
        for held in taken:
            held.own(epochs[held.queue])
            if held.epoch != found[held.queue][1]:  # another owner wrote after our read
                held.hold_until(now_ns + longest_ns(owns[held.queue]))
            self._around.judge.period(held.queue, held.epoch, now_ns)
            self._serve(held)

    def _own_record(self, broker: Broker, end: int) -> Own:
        return Own(
            owner=self._links.name,
            trust_ms=int(self._around.model.lock.trust_s * 1000),
            longest_lease_ms=self._around.model.lease_ms,
            broker_start_ms=broker.started_ms,
            period=end + 1,
        )

    def _serve(self, held: HeldQueue) -> None:
        """Deliver messages from now on, or once earlier leases have ended."""
        if self._links.dead or held.state is not State.OWNED or held.checking:
            return
        now_ns = self._events.now_ns
        if now_ns < held.hold_until_ns:
            self._events.after(held.hold_until_ns - now_ns, self._serve, held)
        elif held.trust.holds(now_ns):
            until_ns = held.trust.until_ns
            self._around.judge.served(
                held.queue, self._links.name, until_ns=until_ns, now_ns=now_ns
            )

    def hand_over(self, held: HeldQueue) -> None:
        """Give a queue back once its leased messages are settled."""
        if held.state is State.OWNED:
            held.begin_hand_over()
            self._around.judge.stopped(held.queue, self._links.name, self._events.now_ns)
            self._events.start(self._handing_over(held))

    def _handing_over(self, held: HeldQueue) -> Process:
        broker = self._around.brokers[held.queue.broker]
        yield self._events.sleep(
            int(self._around.chance.random() * self._around.model.work_s * SECOND)
        )
        if held.state is not State.HANDING_OVER or self._links.dead:
            return
        end = partial(broker.end, held.queue, held.epoch)
        record_ns = self._around.model.costs.record_ns
        # A commit and two records.
        yield self._links.ask(broker, "end", end, times=3, cost_ns=record_ns)
        if held.state is State.HANDING_OVER:
            yield from self._give_back(broker, [held])

    def _give_back(self, broker: Broker, given: Iterable[HeldQueue]) -> Process:
        for held in given:
            held.begin_unlock()
            self._around.judge.gave_up(held.queue, self._links.name, self._events.now_ns)
            turns = self._links.turns[broker.name]
            yield turns.take()
            yield self._links.ask(
                broker,
                "unlock",
                partial(broker.unlock, self._links.name, [held.queue]),
                timeout_ns=self._timeout_ns,
            )
            turns.give_back()
            self._forget(held)

    def _forget(self, held: HeldQueue) -> None:
        held.end()
        if self.owned.get(held.queue) is held:
            del self.owned[held.queue]

    def _lose(self, held: HeldQueue) -> None:
        self._around.judge.gave_up(held.queue, self._links.name, self._events.now_ns)
        self._forget(held)

    # ---- renewal --------------------------------------------------------------------------------

    def renew(self) -> Process:
        """Renew locks while the process lives."""
        while True:
            yield self._events.sleep(int(self._around.model.lock.renewal_s * SECOND))
            if self._links.dead:
                return
            names = sorted({queue.broker for queue in self.owned})
            yield self._events.all_of(self._renew_at(self._around.brokers[name]) for name in names)

    def _renew_at(self, broker: Broker) -> Process:
        turns = self._links.turns[broker.name]
        yield turns.take()
        held = {
            queue: each
            for queue, each in self.owned.items()
            if queue.broker == broker.name and each.state in _LIVE
        }
        if not held:
            turns.give_back()
            return
        before_ns = self._events.now_ns
        granted = yield self._links.ask_locks(broker, held)
        turns.give_back()
        if granted is NO_ANSWER or self._links.dead:
            return
        now_ns, until_ns = self._events.now_ns, before_ns + self._trust_ns
        doubted = []
        for queue, each in held.items():
            if each.state not in _LIVE:
                continue
            if queue not in granted:
                self._lose(each)
                self._wake()
                continue
            each.trust.granted(until_ns, now_ns=now_ns)
            self._around.judge.trusted(queue, self._links.name, until_ns=until_ns, now_ns=now_ns)
            if each.epoch < 0:
                continue
            if each.trust.doubtful:
                each.trust.cleared()
                each.begin_check()
                doubted.append(each)
            elif each.state is State.OWNED:
                self._serve(each)
        if doubted:
            self._events.start(self._check(broker, doubted))

    def _check(self, broker: Broker, doubted: list[HeldQueue]) -> Process:
        """Check after a lapse: trust the lock again if the queue had no other owner meanwhile."""
        asked = [held.queue for held in doubted]
        while True:
            found = yield self._links.ask(
                broker, "take over", partial(broker.last, asked), times=3 * len(asked)
            )
            if found is not NO_ANSWER or self._links.dead:
                break
            yield self._events.sleep(_LOOK_AGAIN_NS)
        if self._links.dead:
            return
        for held in doubted:
            held.end_check()
            last, _ = found[held.queue]
            if held.state is not State.OWNED:
                continue
            if last is None or (last.epoch, last.own.owner) != (held.epoch, self._links.name):
                self._lose(held)
                self._wake()
            else:
                self._serve(held)
