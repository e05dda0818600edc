"""Takes part in consumer groups: heartbeats, so that brokers list this client as a member.

A broker forgets a member 120 s after its last heartbeat, or at once when the connection ends; so
heartbeats go out regularly and also right after every new connection. They ask to be forgotten
sooner, which the embedded broker does and Apache RocketMQ does not: then others need not wait for a
client that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

import structlog

from broker_core.client.broker_client import BrokerClient
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, Topic
from broker_core.remoting.admin_bodies import running_to_json
from broker_core.remoting.admin_headers import ClientOfGroupHeader
from broker_core.remoting.bodies import (
    MEMBER_EXPIRY_MS,
    ConsumerData,
    Heartbeat,
    Subscription,
)
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import VERSION, RemotingCommand
from broker_core.remoting_channel import RemotingChannel
from broker_core.tasks import cancel_and_wait, spawn

#: Brokers replace a subscription by a higher version only; ours is always "*" and never changes.
_SUBSCRIPTION_VERSION = 1

_log = structlog.get_logger("membership")


class Membership:
    """The groups that this client belongs to. One for a BrokerClient."""

    def __init__(
        self, client: BrokerClient, *, heartbeat_s: float = 10.0, expiry_s: float = 120.0
    ) -> None:
        """*expiry_s*: how long to be a member without a heartbeat; 120 s at most. *heartbeat_s*
        is the longest time between two: there are three of them in that time.
        """
        self._client = client
        self._heartbeat_s = min(heartbeat_s, expiry_s / 3)
        self._expiry_ms = min(int(expiry_s * 1000), MEMBER_EXPIRY_MS)
        self._groups: dict[Group, frozenset[Topic]] = {}
        self._wake = asyncio.Event()
        # A heartbeat that overtook a leave would make a ghost of us for 120 s.
        self._talking = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._unwell: set[str] = set()  # brokers whose last heartbeat failed
        self._joined_ms: dict[Group, int] = {}
        client.call_on_connect(self._wake.set)
        client.serve(RequestCode.GET_CONSUMER_RUNNING_INFO, self._tell)

    def __repr__(self) -> str:
        return f"<Membership {self._client.client_id} groups={sorted(self._groups)}>"

    async def join(self, group: Group, topics: Iterable[Topic]) -> None:
        """Become a member of *group* for exactly *topics*, at once and until ``leave``.

        A broker that cannot be reached is logged and tried again; nothing is raised.
        """
        self._groups[group] = frozenset(topics)
        self._joined_ms.setdefault(group, wall_ms())
        await self._beat()
        if self._beating is None:
            self._beating = spawn(self._keep_beating(), name="heartbeats")

    async def leave(self, group: Group) -> None:
        """Be no member of *group* any more; other members are told. Nothing is raised."""
        topics = self._groups.pop(group, frozenset())
        self._joined_ms.pop(group, None)
        async with self._talking:
            brokers = await self._brokers(topics)
            await asyncio.gather(*(self._unregister(broker, group) for broker in brokers))

    async def close(self) -> None:
        """Leave all groups."""
        await asyncio.gather(*(self.leave(group) for group in list(self._groups)))
        await cancel_and_wait(self._beating)

    def _tell(self, request: RemotingCommand, _channel: RemotingChannel) -> RemotingCommand:
        """Say to whoever administers a broker what this client is in a group."""
        group = Group(ClientOfGroupHeader.from_ext(request.ext).consumer_group)
        if group not in self._groups:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )
        consumer = _consumer(group, self._groups[group])
        properties = {
            "PROP_CLIENT_VERSION": f"orderlane {VERSION}",
            "PROP_CONSUMEORDERLY": "true",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._joined_ms[group]),
            "PROP_CONSUME_TYPE": consumer.consume_type,
        }
        return request.response(body=running_to_json(properties, consumer.subscriptions))

    async def _keep_beating(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_s):
                    await self._wake.wait()
            self._wake.clear()
            await self._beat()

    async def _beat(self) -> None:
        async with self._talking:
            groups = dict(self._groups)
            if not groups:
                return
            heartbeat = Heartbeat(
                client_id=self._client.client_id,
                expiry_ms=self._expiry_ms,
                consumers=tuple(_consumer(group, topics) for group, topics in groups.items()),
            )
            brokers = await self._brokers(frozenset().union(*groups.values()))
            await asyncio.gather(*(self._beat_at(broker, heartbeat) for broker in brokers))

    async def _beat_at(self, broker: str, heartbeat: Heartbeat) -> None:
        try:
            await self._client.heartbeat(broker, heartbeat)
        except RemotingError as error:
            if broker not in self._unwell:
                _log.warning("heartbeat failed, trying on", broker=broker, reason=str(error))
            self._unwell.add(broker)
        else:
            self._unwell.discard(broker)

    async def _unregister(self, broker: str, group: Group) -> None:
        try:
            await self._client.unregister(broker, group)
        except RemotingError as error:  # it will notice when the heartbeats end
            _log.warning("not unregistered", broker=broker, group=group, reason=str(error))

    async def _brokers(self, topics: Iterable[Topic]) -> set[str]:
        brokers: set[str] = set()
        for topic in topics:
            try:
                brokers.update(await self._client.broker_names(topic))
            except RemotingError as error:
                _log.debug("no brokers for topic", topic=topic, reason=str(error))
        return brokers


def _consumer(group: Group, topics: Iterable[Topic]) -> ConsumerData:
    return ConsumerData(
        group=group,
        subscriptions=tuple(
            Subscription(topic=topic, version=_SUBSCRIPTION_VERSION) for topic in sorted(topics)
        ),
    )
