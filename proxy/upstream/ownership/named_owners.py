"""What this proxy knows of a group's queues that people gave to proxies by name."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import QueueName
from proxy.core.ownership.named_owners import Handoffs
from proxy.lane.group_lane import GroupLane
from proxy.settings.proxy_settings import Settings
from proxy.upstream.broker_rounds import BrokerRounds
from proxy.upstream.context import UpstreamContext

_S = 1_000_000_000
#: For so long, at most, a queue waits for the proxy that was named.
_WAIT_S = 30.0
#: Before the first look at who has the lock of a queue, and between two; mostly it comes soon.
_LOOK_NS = 2 * _S
_LOOKS_AT_ONCE = 16


def handoffs_of(settings: Settings) -> Handoffs:
    """A queue waits no longer than after a crash: until a lock would have run out. The one that was
    named comes for it for as long as a hand-over may take, and then that.
    """
    wait_s = min(_WAIT_S, settings.lock.broker_lock_expiry_s)
    expect_s = settings.ownership.drain_s + _WAIT_S
    return Handoffs(expect_ns=int(expect_s * _S), wait_ns=int(wait_s * _S))


class GivenQueues:
    """One group's: ``known`` decides, and this looks at the records of those that others have."""

    def __init__(self, context: UpstreamContext, lane: GroupLane) -> None:
        self._context = context
        self._lane = lane
        self.known = handoffs_of(context.settings)
        self._look_from_ns: dict[QueueName, int] = {}  # not before then who has it
        self._looks = BrokerRounds(f"owners of {lane.name}")

    def locked(
        self, broker: str, granted: Collection[QueueName], refused: Collection[QueueName]
    ) -> None:
        """Locks were asked for at *broker*. Look now and then who has those that were refused."""
        for queue in granted:
            self._look_from_ns.pop(queue, None)
        now = now_ns()
        due = [
            queue
            for queue in sorted(refused)
            if self._look_from_ns.setdefault(queue, now + _LOOK_NS) <= now
        ]
        if due:  # nobody waits for it: the broker may be slow, and others ask for locks meanwhile
            self._looks.begin(broker, self._look_at_all, due[:_LOOKS_AT_ONCE])

    async def close(self) -> None:
        """Look at nothing any more."""
        await self._looks.close()

    async def _look_at_all(self, queues: Iterable[QueueName]) -> None:
        await asyncio.gather(*map(self._look_at, queues))

    async def _look_at(self, queue: QueueName) -> None:
        """Another has the lock of *queue*: if people gave it to that one, leave it alone."""
        self._look_from_ns[queue] = now_ns() + _LOOK_NS
        try:
            last = await self._context.log.owner(self._lane.name, queue)
        except RemotingError:
            return  # the lock is asked for again anyhow
        if last is None or last.clean or not last.own.by_name:
            return
        if last.own.owner != self._context.client.client_id:
            self.known.found_with(queue, last.own.owner, now_ns=now_ns())
