"""Clients: heartbeats (34), leaving (35), members of a group (38); tells them of changes (40)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from broker_core.broker.groups import Groups
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, ConnectionLost
from broker_core.names import Group
from broker_core.remoting.bodies import Heartbeat, consumer_ids_to_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import ConsumerGroupHeader, UnregisterClientHeader
from broker_core.remoting_channel import Answer, Handler, RemotingChannel


class ClientProcessor:
    """Keeps *groups* up to date."""

    def __init__(self, groups: Groups[RemotingChannel]) -> None:
        self._groups = groups

    def handlers(self) -> dict[int, Handler]:
        """Request codes served."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
        }

    def connection_closed(self, channel: RemotingChannel) -> None:
        """Its clients are no members any more."""
        self._tell(self._groups.connection_closed(channel))

    def expire(self) -> None:
        """Drop members that fell silent."""
        self._tell(self._groups.expire(now_ns()))

    def _heartbeat(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        heartbeat = Heartbeat.from_json(request.body)
        self._tell(
            self._groups.heartbeat(
                heartbeat.client_id, channel, heartbeat.consumers, now_ns=now_ns()
            )
        )
        return request.response()

    def _unregister(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = UnregisterClientHeader.from_ext(request.ext)
        if header.consumer_group:
            self._tell(self._groups.unregister(header.client_id, Group(header.consumer_group)))
        return request.response()

    def _members(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        group = ConsumerGroupHeader.from_ext(request.ext).consumer_group
        members = self._groups.members(Group(group))
        if not members:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.response(body=consumer_ids_to_json(members))

    def _tell(self, groups: Iterable[Group]) -> None:
        for group in groups:
            for channel in self._groups.connections(group):
                with suppress(ConnectionLost):  # its end will be noticed
                    channel.send_oneway(
                        RemotingCommand(
                            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                            ext=ConsumerGroupHeader(consumer_group=group).to_ext(),
                        )
                    )
