"""Membership of a client in producer groups: brokers ask it about open transactions of these."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from broker_core.client.broker_client import BrokerClient
from broker_core.client.half_messages import PRODUCER_GROUP
from broker_core.client.heartbeats import Heartbeats
from broker_core.errors import RemotingError
from broker_core.names import Group, Topic
from broker_core.remoting.bodies import Heartbeat
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.half_place import HalfPlace
from broker_core.remoting.message import StoredMessage, decode_message
from broker_core.remoting.transaction_headers import CheckTransactionHeader
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.tasks import spawn


class Question(NamedTuple):
    """A broker's question whether the transaction of a half message is to be committed.

    ``half`` is decoded as for a consumer; the answer may go over ``channel``.
    """

    half: StoredMessage
    group: str
    header: CheckTransactionHeader
    channel: RemotingChannel

    def place(self, broker: str) -> HalfPlace:
        """Return where to end the transaction, at the *broker* that asked."""
        return HalfPlace(
            broker=broker,
            topic=self.half.topic,
            group=self.group,
            half_offset=self.header.tran_state_table_offset,
            log_offset=self.header.commit_log_offset,
            message_id=self.half.message_id,
            asked=True,
        )


class ProducerGroups:
    """The producer groups that this client belongs to. One per BrokerClient.

    A broker may ask any member of a group about any transaction of it.
    """

    def __init__(
        self,
        client: BrokerClient,
        *,
        asked: Callable[[Question], Awaitable[None]],
        heartbeat_s: float = 10.0,
    ) -> None:
        """Create memberships without groups.

        *asked* is called for each question. *heartbeat_s* is the time between two heartbeats; a
        broker forgets a producer after 120 s without one.
        """
        self._client = client
        self._asked = asked
        self._groups: dict[Group, frozenset[Topic]] = {}
        self._notices: set[asyncio.Task[None]] = set()
        self._heartbeats = Heartbeats(
            client, self._heartbeat, topics=self._topics, every_s=heartbeat_s
        )
        client.serve(RequestCode.CHECK_TRANSACTION_STATE, self._ask)

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def become(self, groups: Mapping[Group, frozenset[Topic]]) -> None:
        """Belong to exactly *groups* with their topics from now on, as by ``join`` and ``leave``.

        Brokers are notified in the background, each by itself: a slow one delays no other.
        """
        if groups == self._groups:
            return
        topics, left = self._topics(), self._groups.keys() - groups.keys()
        self._groups = dict(groups)
        self._heartbeats.resend_all()
        self._heartbeats.start()
        notice = spawn(self._notify(left, topics), name="producer groups of brokers")
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)

    async def join(self, group: Group, topics: Iterable[Topic]) -> None:
        """Let the brokers of exactly *topics* ask about *group* from now on, also about earlier
        transactions.

        An unreachable broker is logged and tried again. Raises nothing.
        """
        self._groups[group] = frozenset(topics)
        await self._heartbeats.beat()
        self._heartbeats.start()

    async def leave(self, group: Group) -> None:
        """Leave *group*: its open transactions are left to other members. Raises nothing."""
        topics = self._topics()  # heartbeats went to the brokers of all groups' topics
        if self._groups.pop(group, None) is not None:
            await self._left((group,), topics)

    async def close(self) -> None:
        """Leave all groups."""
        await self._heartbeats.close()
        leaves = (self.leave(group) for group in list(self._groups))
        await asyncio.gather(*self._notices, *leaves, return_exceptions=True)

    async def _notify(self, left: Collection[Group], topics: Collection[Topic]) -> None:
        """Tell brokers the groups, and those of *topics* that this client *left* some."""
        await asyncio.gather(self._heartbeats.beat(missing_only=True), self._left(left, topics))

    async def _left(self, groups: Collection[Group], topics: Collection[Topic]) -> None:
        async def leave_at(broker: str) -> None:
            for group in sorted(groups):
                await self._unregister(broker, group)

        if groups:
            brokers = await self._heartbeats.brokers(topics)
            await asyncio.gather(*map(leave_at, sorted(brokers)))

    def _topics(self) -> set[Topic]:
        return set[Topic]().union(*self._groups.values())

    def _heartbeat(self) -> Heartbeat | None:
        if not self._groups:
            return None
        return Heartbeat(client_id=self._client.client_id, producers=tuple(sorted(self._groups)))

    async def _unregister(self, broker: str, group: Group) -> None:
        with contextlib.suppress(RemotingError):  # the broker notices when heartbeats end
            # A heartbeat that overtakes a leave would keep this client listed for 120 s.
            async with self._heartbeats.send_lock(broker):
                if group not in self._groups:  # otherwise it was joined again
                    await self._client.unregister(broker, producer=group)

    async def _ask(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = CheckTransactionHeader.from_ext(request.ext)
        half = decode_message(bytes(request.body))
        group = half.properties.get(PRODUCER_GROUP, "")
        await self._asked(Question(half, group, header, channel))
        return None
