"""Queues of a group that operators gave to proxies by name, as known to this proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import QueueName
from proxy.core.ownership.named_owners import Handoffs
from proxy.lane.group_lane import GroupLane
from proxy.settings.proxy_settings import Settings
from proxy.upstream.broker_tasks import BrokerTasks
from proxy.upstream.context import UpstreamContext

_S = 1_000_000_000
#: Maximum wait of a queue for the named proxy.
_WAIT_S = 30.0
#: Delay before the first check of a denied lock's owner, and interval of checks; the lock is
#: usually granted sooner.
_LOOK_NS = 2 * _S
_LOOKS_AT_ONCE = 16


def handoffs_of(settings: Settings) -> Handoffs:
    """Return the hand-offs with times from *settings*.

    A queue waits at most as long as after a crash: until a lock would have expired. The named proxy
    tries for the duration of a hand-over and of that wait.
    """
    wait_s = min(_WAIT_S, settings.lock.broker_lock_expiry_s)
    expect_s = settings.ownership.drain_s + _WAIT_S
    return Handoffs(expect_ns=int(expect_s * _S), wait_ns=int(wait_s * _S))


class GivenQueues:
    """Given queues of one group: ``known`` decides, this class reads the records of
    other owners.
    """

    def __init__(self, context: UpstreamContext, lane: GroupLane) -> None:
        self._context = context
        self._lane = lane
        self.known = handoffs_of(context.settings)
        self._look_from_ns: dict[QueueName, int] = {}  # earliest time of the next check
        self._looks = BrokerTasks(f"owners of {lane.name}")

    def locked(
        self, broker: str, granted: Collection[QueueName], refused: Collection[QueueName]
    ) -> None:
        """Note granted and refused locks at *broker*; check the owners of refused ones at
        intervals.
        """
        for queue in granted:
            self._look_from_ns.pop(queue, None)
        now = now_ns()
        due = [
            queue
            for queue in sorted(refused)
            if self._look_from_ns.setdefault(queue, now + _LOOK_NS) <= now
        ]
        if due:  # in the background: the broker may be slow, and renewals must not wait
            self._looks.start(broker, self._look_at_all, due[:_LOOKS_AT_ONCE])

    async def close(self) -> None:
        """Stop the checks."""
        await self._looks.close()

    async def _look_at_all(self, queues: Iterable[QueueName]) -> None:
        await asyncio.gather(*map(self._look_at, queues))

    async def _look_at(self, queue: QueueName) -> None:
        """Leave *queue* alone if operators gave it to the member that has its lock."""
        self._look_from_ns[queue] = now_ns() + _LOOK_NS
        try:
            last = await self._context.log.owner(self._lane.name, queue)
        except RemotingError:
            return  # the lock is requested again anyway
        if last is None or last.clean or not last.own.by_name:
            return
        if last.own.owner != self._context.client.client_id:
            self.known.found_with(queue, last.own.owner, now_ns=now_ns())
