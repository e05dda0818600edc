"""Messages sent back by consumers: code 36."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.access.file import CallerRights
from broker_core.access.needs import reading_needs
from broker_core.broker.delay_rules import DelayRules
from broker_core.broker.groups.retries import is_given_up, most_times, sent_back
from broker_core.broker.groups.retry_topics import RetryTopics
from broker_core.broker.sending.placement import place
from broker_core.broker.store_answers import check_confirmed, not_written
from broker_core.broker.topics.ended_lives import EndedLives
from broker_core.broker.topics.topics import SYSTEM_TOPICS
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, LocalProtocolError
from broker_core.names import Group
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import StoredMessage
from broker_core.remoting.retry_headers import SendBackHeader
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.message_store import MessageStore

_DEAD = -1


class SendBackProcessor:
    """Stores a copy of the message: for a later retry, or as a dead letter of the group."""

    def __init__(
        self,
        store: MessageStore,
        retries: RetryTopics,
        rules: DelayRules,
        *,
        ended_lives: EndedLives,
        store_host: Callable[[], bytes],
        rights_of: Callable[[RemotingCommand, RemotingChannel], CallerRights | None],
    ) -> None:
        """*rights_of* returns the rights of a request's account, None if it may do everything."""
        self._rights_of = rights_of
        self._store = store
        self._ended_lives = ended_lives
        self._retries = retries
        self._rules = rules
        self._store_host = store_host

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back}

    async def _send_back(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = SendBackHeader.from_ext(request.ext)
        group = Group(header.group)
        config = self._retries.groups.config(group)
        if config.retry_queue_nums <= 0:
            return request.response()  # the group wants no retries
        if self._is_former(header.offset):
            return request.response()  # its topic was deleted
        message = self._message(header.offset)
        # The request names a place: the group would get a copy of any topic's message.
        if (rights := self._rights_of(request, channel)) is not None:
            rights.check(reading_needs(group, message.topic))
        topic, queue_id = await self._retries.for_retry(group)
        level = header.delay_level
        most = most_times(
            config.retry_max_times, header.max_reconsume_times, version=request.version
        )
        if is_given_up(message, delay_level=level, most=most):
            topic, queue_id = await self._retries.for_dead_letter(group)
            level = _DEAD
        if self._ended_lives.is_ending(message):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"topic {message.topic} is being deleted")
        now_ms = wall_ms()
        try:
            envelope, entry = sent_back(
                message, topic, queue_id, delay_level=level, store_host=self._store_host()
            )
            placed = place(envelope, [entry], producer_group="", rules=self._rules, now_ms=now_ms)
            stored = await self._store.put(placed.envelope, placed.entries, store_ms=now_ms)
        except (ValueError, LocalProtocolError) as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except OSError as error:
            raise not_written(error) from error
        check_confirmed(stored.kept)
        return request.response()

    def _is_former(self, offset: int) -> bool:
        # The offset may be inside a body that contains a message: nothing of it is stored.
        record = self._store.reader.record_at(offset)
        return record is not None and self._ended_lives.is_former(record)

    def _message(self, offset: int) -> StoredMessage:
        message = self._store.reader.message_at(offset)
        if message is None or message.topic in SYSTEM_TOPICS:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed, {offset}: no message starts there, or retention"
                " deleted it",
            )
        return message
