"""Membership of consumer groups: heartbeats by which brokers list this client as a member.

A broker forgets a member 120 s after its last heartbeat, or at once when the connection ends, so
heartbeats are sent periodically and after every new connection. They request a shorter expiry,
which the embedded broker grants and Apache RocketMQ does not: other members then need not wait for
a client that hangs.

A member may also show *signs*: names of producer groups under which brokers list it. Brokers keep
them in memory only and announce no change; other members query them
(``BrokerClient.producer_ids``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import structlog

from broker_core.client.broker_client import BrokerClient
from broker_core.client.heartbeats import Heartbeats
from broker_core.clock import now_ns, wall_ms
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

#: Brokers replace a subscription by a higher version only; ours is always "*" and never changes.
_SUBSCRIPTION_VERSION = 1

_log = structlog.get_logger("membership")


class Membership:
    """The groups that this client belongs to. One per BrokerClient."""

    def __init__(
        self, client: BrokerClient, *, heartbeat_s: float = 10.0, expiry_s: float = 120.0
    ) -> None:
        """Create memberships without groups.

        *heartbeat_s*: longest time between two heartbeats, at most a third of *expiry_s*.
        *expiry_s*: time without a heartbeat after which brokers may forget this client; at most 120
        s.
        """
        self._client = client
        self._expiry_ms = min(int(expiry_s * 1000), MEMBER_EXPIRY_MS)
        self._groups: dict[Group, frozenset[Topic]] = {}
        self._heartbeats = Heartbeats(
            client,
            self._heartbeat,
            topics=lambda: list(self._topics),
            every_s=min(heartbeat_s, expiry_s / 3),
        )
        self._topics: Counter[Topic] = Counter()  # of all groups, with their number
        self._joined_ms: dict[Group, int] = {}
        self._signs: dict[Group, frozenset[Group]] = {}
        self._shown: set[Group] = set()  # signs of all groups
        self._last_heartbeat: Heartbeat | None = None  # unless groups have changed since
        #: Signs that could not be withdrawn, by broker, with the end of the attempts (ns).
        self._withdrawn: dict[tuple[Group, str], int] = {}
        client.serve(RequestCode.GET_CONSUMER_RUNNING_INFO, self._report_state)

    def __repr__(self) -> str:
        return f"<Membership {self._client.client_id} groups={sorted(self._groups)}>"

    async def join(
        self, group: Group, topics: Iterable[Topic], *, signs: Iterable[Group] = ()
    ) -> None:
        """Become a member of *group* for exactly *topics*, until ``leave``, and show exactly
        *signs*.

        No other group may show the same signs. Repeated calls only notify brokers that do not know
        the membership yet. An unreachable broker is logged and tried again. Raises nothing.
        """
        wanted, shown = frozenset(topics), frozenset(signs)
        before = self._signs.get(group, frozenset())
        news = self._groups.get(group) != wanted or not shown <= before
        reach = wanted | self._groups.get(group, frozenset())
        self._subscribe(group, wanted)
        self._signs[group] = shown
        if before != shown:
            self._shown = (self._shown - before) | shown
            self._last_heartbeat = None
        self._joined_ms.setdefault(group, wall_ms())
        if news:
            self._heartbeats.resend_all()
        await self._heartbeats.beat(missing_only=True)
        self._heartbeats.start()
        await self._withdraw(before - shown, reach)

    def unlisted(self) -> None:
        """Notify all brokers at the next ``join``: one does not list this client."""
        self._heartbeats.resend_all()

    async def leave(self, group: Group) -> None:
        """Leave *group*; brokers notify the other members. Raises nothing."""
        topics = self._groups.get(group, frozenset())
        self._subscribe(group, None)
        signs = self._signs.pop(group, frozenset())
        self._shown -= signs
        self._last_heartbeat = None
        self._joined_ms.pop(group, None)
        brokers = await self._heartbeats.brokers(topics)
        await asyncio.gather(*(self._unregister(broker, group) for broker in sorted(brokers)))
        await self._withdraw(signs, topics)

    async def close(self) -> None:
        """Leave all groups."""
        await asyncio.gather(*(self.leave(group) for group in list(self._groups)))
        await self._heartbeats.close()

    async def stop(self) -> None:
        """Stop heartbeats without leaving: brokers notice the end of the connection."""
        await self._heartbeats.close()

    def _report_state(self, request: RemotingCommand, _channel: RemotingChannel) -> RemotingCommand:
        """Return this client's state in a group, for administrators of a broker."""
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

    def _subscribe(self, group: Group, topics: frozenset[Topic] | None) -> None:
        before = self._groups.get(group)
        if before == topics:
            return
        self._last_heartbeat = None
        self._topics.update(topics or ())
        for topic in before or ():
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
        if topics is None:
            self._groups.pop(group, None)
        else:
            self._groups[group] = topics

    def _heartbeat(self) -> Heartbeat | None:
        if not self._groups:
            return None
        if self._last_heartbeat is None:  # with a thousand groups it is long
            self._last_heartbeat = Heartbeat(
                client_id=self._client.client_id,
                expiry_ms=self._expiry_ms,
                producers=tuple(sorted(self._shown)),
                consumers=tuple(_consumer(*each) for each in self._groups.items()),
            )
        return self._last_heartbeat

    async def _withdraw(self, signs: frozenset[Group], topics: frozenset[Topic]) -> None:
        """Stop to show *signs* at the brokers of *topics*; retry for earlier signs."""
        if not (signs or self._withdrawn):
            return
        brokers = await self._heartbeats.brokers(topics) if signs else set()
        until_ns = now_ns() + MEMBER_EXPIRY_MS * 1_000_000  # it is forgotten by then anyway
        # Those that failed before are this call's now: a thousand calls share them.
        due, self._withdrawn = self._withdrawn, {}
        due |= {(sign, broker): until_ns for sign in signs for broker in brokers}
        await asyncio.gather(*(self._withdraw_at(*each, due[each]) for each in sorted(due)))

    async def _withdraw_at(self, sign: Group, broker: str, until_ns: int) -> None:
        """Withdraw *sign* unless it is shown again, or forgotten by now."""
        async with self._heartbeats.send_lock(broker):
            if sign in self._shown or now_ns() >= until_ns:
                return
            try:
                await self._client.unregister(broker, producer=sign)
            except RemotingError as error:
                _log.debug("sign not withdrawn, trying again", broker=broker, reason=str(error))
                self._withdrawn[sign, broker] = until_ns

    async def _unregister(self, broker: str, group: Group) -> None:
        try:
            # A heartbeat that overtakes a leave would keep this client listed for 120 s.
            async with self._heartbeats.send_lock(broker):
                if group not in self._groups:  # otherwise it was joined again
                    await self._client.unregister(broker, group)
        except RemotingError as error:  # the broker notices when heartbeats end
            _log.warning("not unregistered", broker=broker, group=group, reason=str(error))


def _consumer(group: Group, topics: Iterable[Topic]) -> ConsumerData:
    return ConsumerData(
        group=group,
        subscriptions=tuple(
            Subscription(topic=topic, version=_SUBSCRIPTION_VERSION) for topic in sorted(topics)
        ),
    )
