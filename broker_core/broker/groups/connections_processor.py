"""Requests about clients: connections (203, 204, 328), subscriptions (345), a client's state
(307).
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.groups.groups import Groups, Member
from broker_core.broker.groups.producers import Producers
from broker_core.errors import BrokerError, ConnectionLost, RequestTimeout
from broker_core.names import Group, Topic
from broker_core.remoting.admin_bodies import (
    ClientFacts,
    connections_to_json,
    consumers_to_json,
    producers_to_json,
    subscription_to_json,
)
from broker_core.remoting.admin_headers import (
    ClientOfGroupHeader,
    GroupTopicHeader,
    ProducerGroupHeader,
)
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import ConsumerGroupHeader
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

CLIENT_ANSWERS_S = 10.0  # timeout of Apache's brokers for a client


class ConnectionProcessor:
    """Answers from the heartbeats, or with the answer of a client."""

    def __init__(
        self, groups: Groups[RemotingChannel], producers: Producers[RemotingChannel]
    ) -> None:
        self._groups = groups
        self._producers = producers

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers_of,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running,
        }

    def _consumers(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        name = ConsumerGroupHeader.from_ext(request.ext).consumer_group
        group = self._groups.find(Group(name))
        if group is None:
            raise BrokerError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        return request.response(
            body=consumers_to_json(
                _facts(group.members),
                group.subscriptions,
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.consume_from_where,
            )
        )

    def _producers_of(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        name = ProducerGroupHeader.from_ext(request.ext).producer_group
        clients = self._producers.clients(Group(name))
        if not clients:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return request.response(body=connections_to_json(_facts(clients)))

    def _all_producers(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        every = {group: _facts(self._producers.clients(group)) for group in self._producers}
        return request.response(body=producers_to_json(every))

    def _subscription(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = GroupTopicHeader.from_ext(request.ext)
        group, topic = Group(header.group), Topic(header.topic)
        found = self._groups.subscription(group, topic)
        return request.response(body=subscription_to_json(group, topic, found))

    async def _running(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = ClientOfGroupHeader.from_ext(request.ext)
        return await self._ask(Group(header.consumer_group), header.client_id, request)

    async def _ask(self, group: Group, client_id: str, request: RemotingCommand) -> Answer:
        known = self._groups.find(group)
        member = None if known is None else known.members.get(client_id)
        if member is None:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        question = RemotingCommand(request.code, ext=dict(request.ext), body=request.body)
        try:
            answer = await member.connection.request(question, timeout_s=CLIENT_ANSWERS_S)
        except RequestTimeout as error:
            raise BrokerError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}>: {error}"
            ) from error
        except ConnectionLost as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}>: {error}"
            ) from error
        return request.response(answer.code, answer.remark, ext=answer.ext, body=answer.body)


def _facts(members: Mapping[str, Member[RemotingChannel]]) -> list[ClientFacts]:
    return [
        ClientFacts(client_id, member.connection.peer, *member.program)
        for client_id, member in sorted(members.items())
    ]
