"""Forgets clients of broadcast groups that have been absent for ``forget_after_s``, and those
absent longest when there are more than ``max_clients``.

1. The newest ownership record of a client's queues, by the brokers' clocks, shows its last
   presence. A client with dead letters or parked messages is kept as long as brokers keep these.
2. It is checked again under the orderly locks of all its queues, which are requested again before
   each step, so no proxy serves it meanwhile. The locks are held under a separate client id;
   otherwise this proxy itself could begin to serve the client.
3. Its offsets are deleted first, because they include the fence for the epochs that its records
   count. Then an offset of its records is committed, so that the client is still listed if this
   process is killed before the end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import structlog

from broker_core import chance
from broker_core.client import BrokerClient
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from proxy.core.broadcast.departed_clients import Belongings, belongings, clients_of
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.observe.logs import NoisyLog
from proxy.upstream.context import UpstreamContext

_EVERY_S = 3600.0
#: Seconds between two checks when many clients have come.
_SOON_S = 10.0
#: Least absence of a client that is forgotten because there are too many, in ms: the records of one
#: that is served may be an hour old.
_ABSENT_MS = 60_000

_log = structlog.get_logger("clients")
_noisy = NoisyLog(_log)


class _LockLost(Exception):
    """Another proxy has a queue of the client, or a broker does not answer."""


@asynccontextmanager
async def _client(context: UpstreamContext) -> AsyncIterator[BrokerClient]:
    client = context.client.another(f"{context.client.client_id}-forget")
    try:
        yield client
    finally:
        await client.close()


class ClientSweep:
    """Checks all broadcast groups of one proxy."""

    def __init__(self, context: UpstreamContext, lanes: Lanes) -> None:
        self._context = context
        self._lanes = lanes
        self._many = asyncio.Event()
        # Last presence of clients, as far as looked up, by broadcast group.
        self._last_ms: defaultdict[Group, dict[Group, int]] = defaultdict(dict)

    @property
    def looked_up(self) -> int:
        """Number of clients whose last presence is remembered."""
        return sum(map(len, self._last_ms.values()))

    async def run(self) -> None:
        """Check about every hour until cancelled, at random times so that proxies do
        not coincide, and soon after many clients have come.
        """
        self._lanes.known_clients.call_on_many(self._many.set)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY_S * chance.between(0.5, 1.5)):
                    await self._many.wait()
                    await asyncio.sleep(_SOON_S * chance.between(0.5, 1.5))
            self._many.clear()
            with _noisy.confined("bug", "clients not checked"):
                await self.sweep(now_ms=self._context.clock_jumps.steady_ms(wall_ms()))

    async def sweep(self, *, now_ms: int) -> list[Group]:
        """Check once and return the forgotten clients; *now_ms* since 1970. Errors are logged."""
        forgotten: list[Group] = []
        for removed in self._last_ms.keys() - {lane.name for lane in self._lanes}:
            del self._last_ms[removed]
        for lane in self._lanes:
            if not lane.is_broadcast:
                continue
            with _noisy.confined(f"bug {lane.name}", "clients not checked", group=lane.name):
                # A separate client: brokers take it for another process.
                async with _client(self._context) as client:
                    forgotten += await self._sweep(lane, client, now_ms)
        return forgotten

    async def _sweep(self, lane: GroupLane, client: BrokerClient, now_ms: int) -> list[Group]:
        try:
            consumers = await client.deletions.consumers()
            clients = clients_of(lane.name, consumers, await client.topics())
        except RemotingError as error:
            _noisy.warning(lane.name, "clients not checked", group=lane.name, reason=str(error))
            return []
        served = {each.name for each in self._lanes.members(lane.name)}
        known = self._lanes.known_clients
        known.learn(lane.name, served.union(clients))
        last_ms = self._last_ms[lane.name]
        for gone in last_ms.keys() - clients.keys():  # another proxy forgot them
            del last_ms[gone]
        forgotten = []
        forget_after_s = lane.settings.forget_after_s
        if forget_after_s is None:
            return []
        for name in sorted(clients.keys() - served):
            since_ms = now_ms - int(min(forget_after_s * 1000, now_ms))
            if await self._forget(lane, client, name, clients[name], since_ms):
                forgotten.append(name)
        most = lane.settings.max_clients
        absent = clients.keys() - served - set(forgotten)
        if (too_many := len(absent) + len(served) - most) > 0:
            await self._look_up(client, absent, lane)
            for name in sorted(absent, key=lambda each: (last_ms.get(each, 0), each)):
                if too_many <= 0 or self._lanes.find(name) is not None:
                    continue
                since_ms = now_ms - _ABSENT_MS
                if await self._forget(lane, client, name, clients[name], since_ms):
                    forgotten.append(name)
                    too_many -= 1
                else:
                    last_ms.pop(name, None)  # it may have returned
        for name in forgotten:
            known.forget(lane.name, name)
            last_ms.pop(name, None)
        return forgotten

    async def _look_up(self, client: BrokerClient, names: Iterable[Group], lane: GroupLane) -> None:
        """Find out when clients were last served, by one queue of each."""
        topics = [Topic(topic.name) for topic in lane.settings.topics]
        last_ms = self._last_ms[lane.name]
        with suppress(RemotingError):  # the others count as absent longest, and are checked
            existing = set(await client.topics())
            for name in sorted(set(names) - last_ms.keys()):
                one = _AbsentClient(client, name, topics, 0)
                last_ms[name] = await one.seen_ms(existing)

    async def _forget(
        self,
        lane: GroupLane,
        client: BrokerClient,
        name: Group,
        consumed: set[Topic],
        since_ms: int,
    ) -> bool:
        """Forget client *name* unless it was served since then; return whether it was
        forgotten.
        """
        if self._lanes.find(name) is not None:
            return False
        topics = consumed | {Topic(topic.name) for topic in lane.settings.topics}
        try:
            return await _AbsentClient(client, name, topics, since_ms).forget()
        except _LockLost:
            _log.info("client not forgotten: its locks are not available", group=name)
        except Exception as error:  # a bug with one client must not end the check of others
            _noisy.warning(
                name,
                "client not forgotten yet",
                group=name,
                reason=str(error),
                exc_info=None if isinstance(error, RemotingError) else error,
            )
        return False


class _AbsentClient:
    """One client that may have been absent too long."""

    def __init__(
        self, client: BrokerClient, group: Group, topics: Iterable[Topic], since_ms: int
    ) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self._since_ms = since_ms
        self._queues: list[QueueName] = []

    async def forget(self) -> bool:
        """Forget the client if no proxy served it since then and no message is kept for it.

        Return False otherwise. Raises RemotingError, and _LockLost if a proxy serves the client
        now.
        """
        if await self._belongings() is None:
            return False
        self._queues = [queue for topic in self._topics for queue in await self._of(topic)]
        try:
            await self._hold()
            left = await self._belongings()
            if left is None:
                return False
            await self._delete(left)
        finally:
            with suppress(RemotingError):  # the locks expire in time
                await self._client.unlock(self._group, self._queues)
        _log.warning(
            "client forgotten: it was absent for forget_after_s, or longest of more than"
            " max_clients",
            group=self._group,
        )
        return True

    async def seen_ms(self, existing: set[Topic]) -> int:
        """Return about when the client was last served, in ms since 1970; 0: unknown.

        *existing*: all topics.
        """
        for topic in sorted(belongings(self._group, self._topics, existing).records):
            if queues := await self._of(topic):
                return await self._last_ms(queues[0])
        return 0

    async def _delete(self, left: Belongings) -> None:
        client = self._client
        await self._hold()
        await client.deletions.delete_group(self._group)
        *first, last = sorted(left.records)
        for broker in await client.broker_names(last):
            with suppress(BrokerError):  # of 5.3: a group without offsets is unknown there
                await client.commit_offset(self._group, QueueName(last, broker, 0), 0)
        for topic in (*first, *sorted(left.parked | left.letters), last):
            await self._hold()
            await client.deletions.delete_topic(topic)
        await self._hold()
        await client.deletions.delete_group(self._group)

    async def _hold(self) -> None:
        answer = await self._client.lock(self._group, self._queues)
        if not answer.granted.issuperset(self._queues):
            raise _LockLost

    async def _belongings(self) -> Belongings | None:
        """Return the client's remaining topics; None if it must be kept or was never a
        client here.
        """
        left = belongings(self._group, self._topics, set(await self._client.topics()))
        if not left.records:
            return None
        for topic in left.records:
            for queue in await self._of(topic):
                if await self._last_ms(queue) >= self._since_ms:
                    return None
        for topic in left.parked | left.letters:
            for queue in await self._of(topic):
                if await self._client.min_offset(queue) < await self._client.max_offset(queue):
                    return None
        return left

    async def _last_ms(self, queue: QueueName) -> int:
        """Return the time of the newest message of *queue*; 0 if it is empty."""
        end = await self._client.max_offset(queue)
        if end == 0:
            return 0
        result = await self._client.pull(
            queue, group=self._group, offset=end - 1, max_messages=1, suspend_ms=0
        )
        return max((message.store_ms for message in result.messages), default=0)

    async def _of(self, topic: Topic) -> list[QueueName]:
        try:
            return await self._client.queues(topic, fresh=True)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return []
            raise
