"""The local share of a group's queues, and their locks; ``lock_renewals`` renews them.

A proxy takes part in a group while it has clients for it, and shows which topics these want. Every
member computes its share of each topic by averaging over the members that want it, as listed by the
brokers, requests the orderly locks of missing queues, and hands over excess ones.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, suppress

import structlog

from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.ownership.demand_signs import sign_of
from proxy.core.ownership.group_share import GroupShare, Present
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.errors import WrongState
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.upstream.commits.committer import Committer
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.demand import GroupMembers, Strangers
from proxy.upstream.ownership.lock_renewals import LockRenewals
from proxy.upstream.ownership.named_owners import GivenQueues
from proxy.upstream.ownership.owned_queue import OwnedQueue, QueueState
from proxy.upstream.ownership.record_renewal import renew_records
from proxy.upstream.ownership.resets import FreeReset, Moving, NoOwnerNow
from proxy.upstream.pace import interval_s
from proxy.upstream.parking.parked_keys import Parking

_log = structlog.get_logger("ownership")

#: Seconds between two looks at a settled group, with very many groups: as its only member, as one
#: of several, and of its local demand; and looks per second in all.
_SOLE_LOOK_S, _CALM_LOOK_S, _DEMAND_LOOK_S, _LOOKS_PER_S = 60.0, 20.0, 10.0, 16.0
#: Seconds between two looks at the local demand while other proxies want the same topics.
_SHARED_LOOK_S = 1.0
_UNLOCKED = (QueueState.UNLOCKING, QueueState.GONE)

#: Longest wait for queues without an owner that an operator needs: a lock whose owner crashed
#: expires meanwhile; and interval of checks.
_TAKEN_WITHIN_NS, _LOOK_AGAIN_S = 15_000_000_000, 0.05
#: Routes of refused queues that are asked for at the same time.
_ROUTES_AT_ONCE = 16
#: Maximum wait for hand-overs before leaving the group.
_LEAVE_WITHIN_S = 0.5
#: A broker that does not list a sign within that time never will.
_UNSEEN_NS = 30_000_000_000


class GroupOwnership:
    """One group's share of queues at this proxy."""

    def __init__(
        self,
        context: UpstreamContext,
        committer: Committer,
        lane: GroupLane,
        *,
        renews: bool = True,
    ) -> None:
        """Start to take part in the group of *lane* while it is wanted.

        *renews* false: the caller renews the locks of all its groups.
        """
        self._context = context
        self._committer = committer
        self._lane = lane
        self._queues: dict[QueueName, OwnedQueue] = {}
        #: Of queues owned here earlier: latest end of their leases.
        self._hold_until_ns: dict[QueueName, int] = {}
        self._given_queues = GivenQueues(context, lane)
        self._share = GroupShare(context.client.client_id, self._given_queues.known)
        self._wake = asyncio.Event()
        # One per broker, so that a slow one does not delay renewals elsewhere.
        self._lock_requests: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._leased: set[QueueName] = set()  # queues with live leases at the last look
        self._elsewhere: set[Topic] = set()  # topics that others wanted at the last look
        self._strangers = Strangers(context.client, lane.name, self.wake)
        self._unseen_ns: dict[Topic, int] = {}  # time since which brokers do not list the sign
        # queues without an owner whose records are being written
        self._moving: set[QueueName] = set()
        self._noisy = NoisyLog(_log)
        self._closing = False
        self._balancing = spawn(self._balance(), name=f"balance {lane.name}")
        self._renewing: asyncio.Task[None] | None = None
        if renews:
            renewals = LockRenewals(context, {lane.name: self}, together=False)
            self._renewing = spawn(renewals.run(), name=f"renew {lane.name}")

    def wake(self) -> None:
        """Check the share: members, topics or clients have changed."""
        self._wake.set()

    def broker_lost(self, broker: str) -> None:
        """Doubt the locks of *broker*, which may have forgotten them in a restart."""
        for queue, owned in self._queues.items():
            if queue.broker == broker:
                owned.connection_lost()
        self.wake()

    def on_parking(self, pipeline: QueuePipeline) -> None:
        """Process the parked keys of *pipeline* or of its queue."""
        if (parking := self.parking(pipeline.origin.queue)) is not None:
            parking.wake()

    def parking(self, queue: QueueName) -> Parking | None:
        """Return the parked keys of *queue*, if it is owned here."""
        owned = self._queues.get(queue)
        return None if owned is None else owned.parking

    def parkings(self, topic: str | None = None) -> Iterator[Parking]:
        """Yield the parked keys of all queues of *topic* (None: any) that are owned here."""
        for queue, owned in sorted(self._queues.items()):
            if topic in (None, queue.topic) and owned.parking is not None:
                yield owned.parking

    @property
    def topics(self) -> list[Topic]:
        """Return the topics of the group."""
        return [Topic(topic.name) for topic in self._lane.settings.topics]

    @property
    def held(self) -> int:
        """Number of queues whose locks this proxy holds."""
        return sum(owned.state is not QueueState.GONE for owned in self._queues.values())

    def owned(self, queue: QueueName) -> OwnedQueue | None:
        """Return *queue* if this proxy has its lock."""
        owned = self._queues.get(queue)
        return None if owned is None or owned.state is QueueState.GONE else owned

    async def take_for_operator(self, queues: Collection[QueueName]) -> None:
        """Own *queues*, which have no owner, for the action of an operator.

        Returns once they are owned, or after a few seconds. Unless a client comes, they are
        released a while after the last action. Nothing happens while another proxy wants their
        topics: it is about to own them. Raises RemotingError.
        """
        if self._context.away or self._closing or self._lane.is_broadcast:
            return
        members = GroupMembers(self._context.client, self._lane.name)
        us = self._context.client.client_id
        for topic in sorted({queue.topic for queue in queues}):
            there = await members.wanting(topic)
            if there.takers_besides(us):
                return
        self._lane.presence.operated({queue.topic for queue in queues})
        self.wake()
        until_ns = now_ns() + _TAKEN_WITHIN_NS
        while not all(map(self._is_settled, queues)) and now_ns() < until_ns:
            await self._context.settled.wait(_LOOK_AGAIN_S)

    def _is_settled(self, queue: QueueName) -> bool:
        parking = self.parking(queue)
        return parking is not None and parking.is_settled

    async def reset_free(self, queue: QueueName, move: Moving, *, life: int | None = None) -> None:
        """Run *move* under the lock of *queue*, which has no owner; *life*: see ``FreeReset.run``.

        Raises WrongState if it has one.
        """
        async with self._moved(queue) as requests:
            reset = FreeReset(self._context, self._lane, queue, lock_requests=requests)
            await reset.run(move, life=life)

    async def renew_free(self, queue: QueueName) -> None:
        """Write the last records of *queue*, which has no owner, again. Raises WrongState,
        RemotingError.
        """
        async with self._moved(queue) as requests:
            await renew_records(self._context, self._lane, queue, lock_requests=requests)

    @asynccontextmanager
    async def _moved(self, queue: QueueName) -> AsyncIterator[asyncio.Lock]:
        requests = self._lock_requests[queue.broker]
        async with requests:
            if self.owned(queue) is not None or queue in self._moving:
                raise NoOwnerNow(queue)
            self._moving.add(queue)
        try:
            # Outside of the lock, or all other queues there would go unrenewed meanwhile.
            yield requests
        finally:
            self._moving.discard(queue)
        self.wake()

    @property
    def is_broadcast(self) -> bool:
        """True if its clients own the queues, each as a group of its own."""
        return self._lane.is_broadcast

    @property
    def auto_created(self) -> bool:
        """True if clients created the group: other proxies may consume further topics of it."""
        return self._lane.auto_created

    def consumes(self, topic: str) -> bool:
        """Return True if *topic* is one of the group's."""
        return topic in self._lane.topics

    async def close(self) -> None:
        """Hand over all queues, then leave the group."""
        self._closing = True
        self.wake()
        await asyncio.wait([self._balancing])
        await cancel_and_wait(self._balancing, self._renewing)
        await self._given_queues.close()

    async def abandon(self) -> None:
        """Stop at once without handing queues over, as in a crash."""
        await cancel_and_wait(self._balancing, self._renewing)
        await asyncio.gather(*(owned.abandon() for owned in self._queues.values()))
        await self._given_queues.close()

    # ---- the share ------------------------------------------------------------------------------

    async def _balance(self) -> None:
        while True:
            self._wake.clear()
            settled = True
            try:
                if self._closing:
                    await self._leave()
                    return
                if self._wanted:
                    settled = await self._take_part()
                elif self._lane.presence.joined:
                    await self._leave()
            except Exception as error:
                settled = False
                self._complain("share not computed; retrying", error)
            rest_s, look_s = self._share.next_look_s(settled=settled)
            if settled and self._lane.presence.joined:
                look_s = max(look_s, self._calm_look_s())
            await self._pause(rest_s, look_s)

    def _calm_look_s(self) -> float:
        """Return the time until the next look at a settled group: with very many groups longer, as
        brokers announce changes of members.
        """
        return interval_s(
            self._context.groups.number,
            least_s=0.0,
            most_s=_SOLE_LOOK_S if self._share.is_alone else _CALM_LOOK_S,
            per_s=_LOOKS_PER_S,
        )

    def _demand_look_s(self) -> float:
        """Return the time until the next look at the local demand: soon if clients of other proxies
        wait for what this one may no longer want.
        """
        if not self._elsewhere:
            return _DEMAND_LOOK_S
        return interval_s(
            self._context.groups.number,
            least_s=_SHARED_LOOK_S,
            most_s=_DEMAND_LOOK_S,
            per_s=_LOOKS_PER_S,
        )

    @property
    def _wanted(self) -> bool:
        presence = self._lane.presence
        return not self._context.away and presence.wanted(leave_after_s=self._leave_after_s)

    @property
    def _leave_after_s(self) -> float:
        return self._context.settings.ownership.leave_after_s

    async def _pause(self, rest_s: float, look_s: float) -> None:
        began_ns, step_s = now_ns(), self._demand_look_s()
        while not await self._woken(min(look_s, step_s)):
            look_s -= step_s
            if look_s <= 0 or self._demand_changed():
                return
        if not self._closing:
            await asyncio.sleep(rest_s - (now_ns() - began_ns) / 1e9)

    async def _woken(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _demand_changed(self) -> bool:
        """Return whether the proxy joins or leaves, or shows other topics, at its next look."""
        presence = self._lane.presence
        if not self._wanted or not presence.joined:
            return self._wanted != presence.joined
        return set(self._wanted_topics(self.topics)) != presence.shown

    def _wanted_topics(self, topics: Iterable[Topic]) -> list[Topic]:
        presence, leave_after_s = self._lane.presence, self._leave_after_s
        leased, given = {queue.topic for queue in self._leased}, self._given_queues.known
        return [
            topic
            for topic in topics
            if presence.wants(
                topic,
                leased=topic in leased,
                leave_after_s=leave_after_s,
                # An operator's choice does not end with a short pause of clients.
                elsewhere=topic in self._elsewhere and not given.expects_any(topic),
            )
        ]

    async def _take_part(self) -> bool:
        """Run once; return False if locks, members or hand-overs are still pending."""
        group, settings = self._lane.name, self._lane.settings
        topics = [Topic(topic.name) for topic in settings.topics]
        self._leased = self._lane.leased_queues()
        signs = self._show(topics)
        await self._context.membership.join(group, topics, signs=signs)
        self._share.begin_look(topics)
        self._elsewhere.intersection_update(topics)
        members = GroupMembers(self._context.client, group)
        for topic in topics:
            await self._look_at(topic, members)
        self._forget_gone()
        refused = self._refused(self._share.share)
        taking = sum(owned.state is QueueState.ACQUIRING for owned in self._queues.values())
        moves = self._share.moves(owned=self._queues.keys(), taking=taking, refused=refused)
        for queue, owned in self._queues.items():
            if queue in moves.hand_over:
                owned.hand_over()
            elif owned.state is QueueState.OWNED:
                owned.follow_tags()
        await asyncio.gather(*(self._lock(broker, queues) for broker, queues in moves.ask.items()))
        sure = all(owned.is_sure for owned in self._queues.values())
        return sure and self._share.settled(owned=self._queues.keys())

    def _show(self, topics: list[Topic]) -> list[Group]:
        """Decide which *topics* this proxy wants and return its signs of them."""
        wanted = self._wanted_topics(topics)
        if not self._lane.presence.joined:
            self._context.groups.begin()
        self._lane.presence.show(wanted, shows_all=wanted == topics)
        return [sign_of(self._lane.name, topic) for topic in wanted]

    def _refused(self, share: set[QueueName]) -> set[QueueName]:
        """Return the queues for which our settings are too old, unless it is time to try again."""
        refused, now = self._lane.refused, now_ns()
        for queue in refused.keys() - share:
            del refused[queue]
        for queue in self._lane.denied.keys() - share:
            del self._lane.denied[queue]
        return {queue for queue, (_, until_ns) in refused.items() if now < until_ns}

    async def _look_at(self, topic: Topic, members: GroupMembers) -> None:
        """Compute which queues of *topic* belong to this proxy, if it can be known now."""
        client = self._context.client
        try:
            queues = await client.queues(topic)
            # First: rates of the group are divided once the queues of all its topics are known.
            self._lane.rates.route(topic, queues)
            there = await members.wanting(topic)
            there = self._strangers.with_subscriptions(there, topic)
        except RemotingError as error:
            unknown = isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST
            if unknown:
                self._lane.rates.route(topic, ())
                self._lane.awaited.setdefault(topic, wall_ms())
            self._noisy.warning(
                topic,
                "the topic does not exist yet; waiting for it"
                if unknown
                else "share of the topic not computed; retrying",
                group=self._lane.name,
                topic=topic,
                reason=str(error),
            )
            self._share.cannot_say(topic, self._queues)
            return
        self._elsewhere.discard(topic)
        if there.takers_besides(client.client_id):
            self._elsewhere.add(topic)
        if (known := self._with_own_sign(topic, there)) is None:
            self._share.cannot_say(topic, self._queues)
            return
        if not self._share.look_at(
            topic,
            known,
            queues=queues,
            owned=self._queues,
            leased=self._leased,
            now_ns=now_ns(),
        ):
            self._context.membership.unlisted()

    def _with_own_sign(self, topic: Topic, there: Present) -> Present | None:
        """Return *there* if this proxy's own sign is as expected; None if it must be shown again.

        If a broker never lists the sign it keeps none; members then count as wanting all topics.
        """
        shown = topic in self._lane.presence.shown
        if not shown or there.wanting is None or self._context.client.client_id in there.wanting:
            self._unseen_ns.pop(topic, None)
            return there
        self._context.membership.unlisted()
        since_ns = self._unseen_ns.setdefault(topic, now_ns())
        return Present(there.members) if now_ns() - since_ns >= _UNSEEN_NS else None

    async def _lock(self, broker: str, queues: set[QueueName]) -> None:
        async with self._lock_requests[broker]:
            queues = queues - self._moving  # otherwise this process would own them twice
            before_ns = now_ns()  # trust counts from before the request: the answer may be late
            answer = await self._context.client.lock(
                self._lane.name, queues, timeout_s=self._context.settings.lock.request_timeout_s
            )
        for queue in sorted(answer.granted):
            self._queues[queue] = OwnedQueue(
                self._context,
                self._committer,
                self._lane,
                queue,
                trusted_until_ns=before_ns + self._trust_ns,
                hold_until_ns=self._hold_until_ns.pop(queue, 0),
                lock_requests=self._lock_requests[broker],
                handoffs=self._given_queues.known,
            )
        # The owner of a queue that no member wants does not matter.
        refused = queues - answer.granted - answer.unanswered - self._share.spare
        for queue in answer.granted:
            self._lane.denied.pop(queue, None)
        for queue in refused:
            self._lane.denied.setdefault(queue, before_ns)
        self._given_queues.locked(broker, answer.granted, refused)

    # ---- queues that operators give to members by name ------------------------------------------

    def expect(self, queue: QueueName) -> None:
        """Expect *queue*, which is about to be given to this proxy."""
        if self.owned(queue) is None:  # otherwise its record would not contain the gift
            self._given_queues.known.expect(queue, now_ns=now_ns())
        self.wake()

    def give(self, queue: QueueName, to: str) -> asyncio.Task[WrongState | None]:
        """Hand *queue* over to *to* and return the task; its result is a refusal if the queue is
        lost meanwhile. Raises WrongState if it is not owned here now.
        """
        owned = self.owned(queue)
        if owned is None:
            raise NoOwnerNow(queue)
        owned.for_reset()
        handing_over = owned.hand_over(to=to)
        self._given_queues.known.give(queue, to, now_ns=now_ns())
        return spawn(self._given(queue, to, handing_over), name=f"give {queue}")

    async def _given(
        self, queue: QueueName, to: str, handing_over: asyncio.Task[None]
    ) -> WrongState | None:
        try:
            await asyncio.wait([handing_over])
            if handing_over.cancelled() or handing_over.exception() is not None:
                return WrongState(
                    f"this proxy lost queue {queue.qid} while it handed it over to {to}: look who"
                    " owns it, and try again"
                )
            return None
        finally:
            # The member has yet to request the lock.
            self._given_queues.known.give(queue, to, now_ns=now_ns())
            self.wake()

    async def _leave(self) -> None:
        """Hand all queues over and leave; clients that arrive meanwhile are served afterwards.

        Leaving last makes other members look only when all queues are free. But if a queue waits
        for leased messages, they may take the others before.
        """
        if tasks := [owned.hand_over() for owned in self._queues.values()]:
            _, waiting = await asyncio.wait(tasks, timeout=_LEAVE_WITHIN_S)
            if waiting:
                await self._leave_group()
                await asyncio.wait(waiting)
        self._forget_gone()
        await self._leave_group()

    async def _leave_group(self) -> None:
        if self._lane.presence.joined:
            self._lane.presence.leave()
            self._lane.awaited.clear()  # no client waits here now
            self._context.groups.end()
            self._lane.denied.clear()
            self._elsewhere.clear()
            self._share.leave()
            await self._context.membership.leave(self._lane.name)

    def _forget_gone(self) -> None:
        for queue, owned in list(self._queues.items()):
            if owned.state is QueueState.GONE:
                del self._queues[queue]
                if owned.hold_until_ns > now_ns():
                    self._hold_until_ns[queue] = owned.hold_until_ns

    def _complain(self, what: str, error: Exception) -> None:
        """Log an error, even a bug, without ending the loop: otherwise the group would stop."""
        bug = None if isinstance(error, RemotingError) else error
        self._noisy.warning(what, what, group=self._lane.name, reason=str(error), exc_info=bug)

    # ---- renewal --------------------------------------------------------------------------------

    @property
    def _trust_ns(self) -> int:
        return int(self._context.settings.lock.trust_s * 1e9)

    @property
    def group(self) -> Group:
        """The group's name."""
        return self._lane.name

    @property
    def brokers(self) -> set[str]:
        """Brokers of queues whose locks may have to be renewed."""
        return {queue.broker for queue in self._queues}

    def renewable(self, broker: str) -> list[OwnedQueue] | None:
        """Return the queues at *broker* whose locks must be renewed; None if they have to be
        renewed by ``renew``.
        """
        client, group = self._context.client, self._lane.name
        held = [
            owned
            for queue, owned in self._queues.items()
            if queue.broker == broker and owned.state not in _UNLOCKED
        ]
        plain = client.holds_plainly(group, (owned.queue for owned in held))
        return held if plain else None

    def resume(self) -> None:
        """Forget clients after the process was stopped for longer than its locks are trusted."""
        self._lane.presence.forget_clients()
        self.wake()

    async def renew(self, broker: str) -> None:
        """Renew the locks at *broker*, or take them again if no other client has them."""
        try:
            timeout_s = self._context.settings.lock.request_timeout_s
            await self._renew_at(broker, timeout_s=timeout_s)
        except Exception as error:
            self._complain("locks not renewed; retrying", error)

    async def _renew_at(self, broker: str, *, timeout_s: float) -> None:
        async with self._lock_requests[broker]:
            held = {
                queue: owned
                for queue, owned in self._queues.items()
                if queue.broker == broker and owned.state not in _UNLOCKED
            }
            if not held:
                return
            before_ns = now_ns()
            answer = await self._context.client.lock(self._lane.name, held, timeout_s=timeout_s)
        for queue, owned in held.items():
            if queue in answer.granted and owned.state not in _UNLOCKED:
                owned.renewed(before_ns + self._trust_ns)
        if refused := held.keys() - answer.granted - answer.unanswered:
            await self._renewals_refused(refused)
        if answer.unanswered:
            self._noisy.warning(
                f"renewal at {broker}",
                "locks not renewed: the broker did not answer; retrying",
                group=self._lane.name,
                broker=broker,
                queues=len(answer.unanswered),
            )

    async def _renewals_refused(self, refused: Collection[QueueName]) -> None:
        """Drop the queues whose renewals were *refused*, as another proxy has their locks.

        A queue that was deleted may come back, so its finished messages are recorded.
        """
        by_topic: defaultdict[Topic, set[QueueName]] = defaultdict(set)
        for queue in refused:
            by_topic[queue.topic].add(queue)
        removed: set[QueueName] = set()
        at_once = asyncio.Semaphore(_ROUTES_AT_ONCE)

        async def ask(topic: Topic) -> None:
            async with at_once:
                with suppress(RemotingError):
                    there = await self._context.client.queues(topic, fresh=True)
                    removed.update(by_topic[topic].difference(there))

        with suppress(TimeoutError):  # one limit for all: they still count as owned meanwhile
            async with asyncio.timeout(self._context.settings.lock.request_timeout_s):
                await asyncio.gather(*map(ask, sorted(by_topic)))
        for queue in sorted(refused):
            owned = self._queues.get(queue)
            if owned is None or owned.state in _UNLOCKED:
                continue
            if queue in removed:
                owned.hand_over()
            else:
                await owned.lose("another proxy has the lock, or the topic was deleted")
        self.wake()
