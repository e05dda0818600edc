"""Requests of clients: heartbeats (34), leaving (35), members of a group (38), filters (46); and
notices of changed groups (40).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from broker_core.broker.groups.groups import Groups, Program
from broker_core.broker.groups.member_limits import MemberLimits
from broker_core.broker.groups.message_filter import wanted_by
from broker_core.broker.groups.notice_pace import NoticePace
from broker_core.broker.groups.producers import Producers
from broker_core.broker.groups.retries import retry_topic
from broker_core.broker.groups.retry_topics import RetryTopics
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, ConnectionLost
from broker_core.names import Group
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.bodies import (
    ConsumerData,
    Heartbeat,
    Subscription,
    consumer_ids_to_json,
)
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import ConsumerGroupHeader, UnregisterClientHeader
from broker_core.remoting.json_fields import MAX_REQUEST_ELEMENTS, JsonObject
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

_STOOD_STILL_NS = 2_000_000_000


class ClientProcessor:
    """Keeps *groups* up to date, and creates the retry topics of their members."""

    def __init__(
        self,
        groups: Groups[RemotingChannel],
        *,
        producers: Producers[RemotingChannel],
        retries: RetryTopics,
        limits: MemberLimits | None = None,
    ) -> None:
        self._limits = limits or MemberLimits()
        self._groups = groups
        self._producers = producers
        self._retries = retries
        self._group_directory = retries.groups
        self._pace = NoticePace()
        self._warnings = RareWarnings("broker")
        self._expired_ns = now_ns()

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_subscription,
        }

    def connection_closed(self, channel: RemotingChannel) -> None:
        """Remove the connection's clients from their groups."""
        self._producers.connection_closed(channel)
        self._schedule_notices(self._groups.connection_closed(channel), now_ns())

    def expire(self) -> None:
        """Drop silent members; call it every second or more often.

        If this process was suspended, unread heartbeats do not count as missing.
        """
        now, last_ns = now_ns(), self._expired_ns
        self._expired_ns = now
        if now - last_ns > _STOOD_STILL_NS:
            self._groups.excuse(now - last_ns)
            self._producers.excuse(now - last_ns)
        self._producers.expire(now)
        self._schedule_notices(self._groups.expire(now), now)

    async def _heartbeat(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        heartbeat = Heartbeat.from_json(request.body)
        consumers = [each for each in heartbeat.consumers if self._is_known(each.group)]
        client_id, now, expiry_ns = heartbeat.client_id, now_ns(), heartbeat.expiry_ms * 1_000_000
        consumers, problem = self._limits.consumers(self._groups, client_id, consumers)
        producers, no_producer = self._limits.producers(
            self._producers, client_id, heartbeat.producers
        )
        program = Program(request.language, request.version)
        self._producers.heartbeat(
            client_id,
            channel,
            producers,
            now_ns=now,
            expiry_ns=expiry_ns,
            program=program,
        )
        self._schedule_notices(
            self._groups.heartbeat(
                client_id, channel, consumers, now_ns=now, expiry_ns=expiry_ns, program=program
            ),
            now,
        )
        for consumer in consumers:
            await self._offer_retry_topic(consumer, channel)
        if (refusal := problem or no_producer) is not None:
            raise refusal  # the other memberships count
        return request.response()

    def _unregister(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = UnregisterClientHeader.from_ext(request.ext)
        if header.producer_group:
            self._producers.unregister(header.client_id, Group(header.producer_group))
        if header.consumer_group:
            group = Group(header.consumer_group)
            self._schedule_notices(self._groups.unregister(header.client_id, group), now_ns())
        return request.response()

    def _members(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        group = ConsumerGroupHeader.from_ext(request.ext).consumer_group
        members = self._groups.members(Group(group))
        if not members:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.response(body=consumer_ids_to_json(members))

    def _check_subscription(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        """Validate a subscription; Java's consumers request it at their start for filters without
        tags.
        """
        asked = JsonObject.parse(
            request.body,
            "check of a client's configuration",
            max_elements=MAX_REQUEST_ELEMENTS,
        )
        if asked.items("subscriptionData"):
            fields = JsonObject(asked.items("subscriptionData"), "subscription")
            wanted_by(Subscription.from_fields(fields))
        return request.response()

    async def _offer_retry_topic(self, consumer: ConsumerData, channel: RemotingChannel) -> None:
        """Create the group's retry topic: Java's push consumers look for it at once, then after 30
        s.
        """
        topic = retry_topic(consumer.group)
        if all(subscription.topic != topic for subscription in consumer.subscriptions):
            return
        try:
            await self._retries.offer(consumer.group)
        except BrokerError as error:  # no reason to lose a member
            self._warnings.warn("retry topic not created", peer=channel.peer, reason=str(error))

    def _is_known(self, group: Group) -> bool:
        """Return whether the group may consume; others of the heartbeat are independent, as in
        Apache's.
        """
        try:
            self._group_directory.config(group)
        except BrokerError:
            return False  # its pulls get the reason
        return True

    def _schedule_notices(self, groups: Iterable[Group], now: int) -> None:
        for group in sorted(groups):
            config = self._group_directory.configs.find(group)
            if config is not None and not config.notify_consumer_ids_changed_enable:
                continue
            wait_ns = self._pace.changed(group, now_ns=now)
            if wait_ns == 0:
                self._notify(group, now)
            elif wait_ns is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(wait_ns / 1e9, lambda it: self._notify(it, now_ns()), group)

    def _notify(self, group: Group, now: int) -> None:
        channels = self._groups.connections(group)
        self._pace.notified(group, len(channels), now_ns=now)
        for channel in channels:
            with suppress(ConnectionLost):  # its end will be noticed
                channel.send_oneway(
                    RemotingCommand(
                        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                        ext=ConsumerGroupHeader(consumer_group=group).to_ext(),
                    )
                )
