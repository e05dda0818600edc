"""Sends: codes 10, 310 and 320."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import lru_cache

from broker_core import chance
from broker_core.broker.groups.retries import without_delay
from broker_core.broker.groups.retry_topics import RetryTopics
from broker_core.broker.sending.counts import SendCounts
from broker_core.broker.sending.placement import Placement, any_says_prepared, place
from broker_core.broker.settings import BrokerSettings
from broker_core.broker.store_answers import ANSWERS, not_written
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import RESERVED_TOPICS, TEMPLATE_TOPIC, named_topic
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, InvalidCommand, LocalProtocolError, RemoteProtocolError
from broker_core.late_answer import LateAnswer
from broker_core.names import RETRY_PREFIX, DelayedPlace, Topic
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import LIFE, SendMessageHeader, SendMessageResponse, send_receipt
from broker_core.remoting.message import (
    MAX_PROPERTIES_BYTES,
    SYS_TRANSACTION,
    UNIQ_KEY,
    decode_properties,
    encode_host,
    encode_properties,
    offset_message_id,
    property_of,
)
from broker_core.remoting.message_batch import decode_batch
from broker_core.remoting.recall_handle import RecallHandle
from broker_core.remoting.record_encoding import BatchEntry, Envelope
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.remoting_channel import Answer, Handler, RemotingChannel, Result
from broker_core.store.message_store import MessageStore
from broker_core.store.pending import Kept, Stored

#: Properties that producers add to the header of every batch; they have no meaning.
_WAIT_ONLY = b"WAIT\x01true"
#: Limit of the other properties of that header, since each message gets them.
_MAX_ADDED_BYTES = 16 * 1024 * 1024


class SendProcessor:
    """Stores messages; answers when they are as durable as the broker's ``flush`` promises."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        store: MessageStore,
        directory: TopicDirectory,
        retries: RetryTopics,
        counts: SendCounts,
        store_host: Callable[[], bytes],
    ) -> None:
        """Store in *store* and count in *counts*; *store_host* is called at the first message, when
        the port is known.
        """
        self._settings = settings
        self._store = store
        self._directory = directory
        self._retries = retries
        self._counts = counts
        self._store_host = store_host
        self._delay_rules = settings.delay_rules
        self._warnings = RareWarnings("broker")

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.SEND_MESSAGE: self._send_long,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
        }

    def _send_long(self, request: RemotingCommand, channel: RemotingChannel) -> Result:
        return self._send_to(request, SendMessageHeader.from_ext(request.ext), channel)

    def _send(self, request: RemotingCommand, channel: RemotingChannel) -> Result:
        return self._send_to(request, SendMessageHeader.from_v2(request.ext), channel)

    def send(self, request: RemotingCommand, channel: RemotingChannel) -> Result:
        """Store the messages of *request*, with code 310 or 320, as its handler does."""
        return self._send(request, channel)

    def _send_to(
        self, request: RemotingCommand, header: SendMessageHeader, channel: RemotingChannel
    ) -> Result:
        try:
            return self._begun(request, header, channel)
        except BrokerError as error:
            self._counts.refuse(error.code)
            raise

    def _begun(
        self, request: RemotingCommand, header: SendMessageHeader, channel: RemotingChannel
    ) -> Result:
        topic = _topic_of(header)
        sent = self._entries(request, header)
        if topic.startswith(RETRY_PREFIX) or self._may_create(topic, header):
            return self._send_when_there(request, header, channel, topic, sent)
        return self._store_all(request, header, channel, (topic, header.queue_id), sent)

    async def _send_when_there(
        self,
        request: RemotingCommand,
        header: SendMessageHeader,
        channel: RemotingChannel,
        topic: Topic,
        sent: list[BatchEntry],
    ) -> Answer:
        """Store as ``_store_all``, after a topic was created or another one was chosen."""
        target = topic, header.queue_id
        try:
            given_up = await self._retries.for_sent(topic, header, version=request.version)
            if given_up is not None:
                target = given_up
                sent = [without_delay(entry) for entry in sent]
            elif self._may_create(topic, header):
                await self._create(topic, header)
            late = self._store_all(request, header, channel, target, sent)
        except BrokerError as error:
            self._counts.refuse(error.code)
            raise
        return await late.given()

    def _store_all(
        self,
        request: RemotingCommand,
        header: SendMessageHeader,
        channel: RemotingChannel,
        target: tuple[Topic, int],
        sent: list[BatchEntry],
    ) -> LateAnswer:
        topic, queue_id = target
        if queue_id < 0:
            queue_id = self._any_queue(topic)
        self._directory.writable(topic, queue_id)
        if (life := request.ext.get(LIFE)) is not None:
            self._check_life(topic, life)
        envelope = self._envelope(topic, queue_id, header, channel)
        now_ms = wall_ms()
        try:
            placed = place(
                envelope,
                sent,
                producer_group=header.producer_group,
                rules=self._delay_rules,
                now_ms=now_ms,
            )
        except (ValueError, LocalProtocolError) as error:
            raise _illegal(str(error)) from error
        late = LateAnswer()

        def done(stored: Stored | Exception) -> None:
            if isinstance(stored, Stored):
                receipt = self._receipt(envelope, placed, stored)
                code, remark = ANSWERS[stored.kept]
                if stored.kept is not Kept.UNCONFIRMED:
                    self._counts.stored(len(sent), len(request.body))
                if code != ResponseCode.SUCCESS:
                    self._counts.refuse(code)
                late.give(request.response(code, remark, ext=receipt))
            else:
                failure = self._failure(stored, channel)
                self._counts.refuse(failure.code if isinstance(failure, BrokerError) else -1)
                late.give(failure)

        if placed.envelope.topic != topic and self._store.is_deletion_pending(topic):
            # After the deletion it would belong to the next life, which has not begun.
            done(OSError(errno.EBUSY, f"topic {topic} is being deleted"))
        else:
            self._store.put_soon(placed.envelope, placed.entries, done, store_ms=now_ms)
        return late

    def _check_life(self, topic: Topic, life: str) -> None:
        """Refuse a record of an owner that does not know the current life of *topic*."""
        now = self._directory.life(topic)
        if life != str(now):
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"message for life {life[:20]} of {topic!r} refused: the topic was deleted since,"
                f" or an older copy of the log restored, and is now in life {now}",
            )

    def _failure(self, error: Exception, channel: RemotingChannel) -> Exception:
        if isinstance(error, ValueError | LocalProtocolError):
            return _illegal(str(error))
        if isinstance(error, OSError):
            self._warnings.warn("message not stored", peer=channel.peer, reason=error.strerror)
            return not_written(error)
        return error

    def _envelope(
        self, topic: Topic, queue_id: int, header: SendMessageHeader, channel: RemotingChannel
    ) -> Envelope:
        return Envelope(
            topic,
            queue_id,
            _host_of(channel.peer),
            self._store_host(),
            sys_flag=header.sys_flag,
            born_ms=header.born_timestamp,
            reconsume_times=header.reconsume_times or 0,
        )

    def _entries(self, request: RemotingCommand, header: SendMessageHeader) -> list[BatchEntry]:
        body = bytes(request.body)
        if len(body) > self._settings.max_message_bytes:
            raise _illegal(
                f"the body has {len(body)} bytes, this broker accepts"
                f" {self._settings.max_message_bytes}"
            )
        properties = (header.properties or "").encode()
        if len(properties) > MAX_PROPERTIES_BYTES:  # before millions of them are parsed
            raise _illegal(
                f"properties of {len(properties)} bytes (at most {MAX_PROPERTIES_BYTES}) are too"
                " long to store"
            )
        if request.code == RequestCode.SEND_BATCH_MESSAGE or header.batch:
            entries = _batch(body, properties)
            if header.sys_flag & SYS_TRANSACTION or any_says_prepared(entries):
                raise _illegal(
                    "a batch must not contain transactional messages: send them one by one"
                )
            return entries
        return [BatchEntry(header.flag, body, properties)]

    def _may_create(self, topic: Topic, header: SendMessageHeader) -> bool:
        """Return whether the send may create its topic from the template that it names."""
        return (
            self._settings.auto_create_topics
            and header.default_topic == TEMPLATE_TOPIC
            and self._directory.topics.find(topic) is None
        )

    async def _create(self, topic: Topic, header: SendMessageHeader) -> None:
        """Create *topic* with the number of queues that its producer expects.

        That is the number it requests, or the maximum if it sends to a queue beyond: it knew the
        topic before its deletion.
        """
        most = self._settings.default_queues
        queues = max(1, min(header.default_topic_queue_nums, most))
        if queues <= header.queue_id < most:
            queues = most
        try:
            await self._directory.define(
                TopicConfig(topic=topic, read_queues=queues, write_queues=queues)
            )
        except OSError as error:
            raise BrokerError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"topic {topic!r} cannot be created now: {error.strerror}",
            ) from error

    def _any_queue(self, topic: Topic) -> int:
        config = self._directory.writable(topic, 0)
        return chance.number_below(config.write_queues)

    def _receipt(self, sent: Envelope, placed: Placement, stored: Stored) -> dict[str, str]:
        host = self._store_host()
        ids = [offset_message_id(host, place) for place in stored.physical_offsets]
        unique = property_of(placed.entries[0].properties, UNIQ_KEY) if len(ids) == 1 else None
        if placed.due_ms is None:
            return send_receipt(",".join(ids), sent.queue_id, stored.first_queue_offset, unique)
        return SendMessageResponse(
            msg_id=",".join(ids),
            queue_id=sent.queue_id,
            queue_offset=stored.first_queue_offset,
            transaction_id=unique,
            recall_handle=self._handle(sent, placed, stored, unique or ids[0]),
        ).to_ext()

    def _handle(
        self, sent: Envelope, placed: Placement, stored: Stored, message_id: str
    ) -> str | None:
        """Return the recall handle of a delayed message; None for others."""
        if placed.due_ms is None or " " in message_id:
            return None
        envelope = placed.envelope
        place = DelayedPlace.of(envelope.topic, envelope.queue_id, stored.first_queue_offset)
        return RecallHandle(
            sent.topic, self._settings.broker_name, placed.due_ms, message_id, place.number
        ).to_text()


def _topic_of(header: SendMessageHeader) -> Topic:
    topic = named_topic(header.topic)
    if topic in RESERVED_TOPICS:
        raise BrokerError(
            ResponseCode.NO_PERMISSION,
            f"topic {topic} is the broker's own: send to another topic",
        )
    return topic


def _batch(body: bytes, header_properties: bytes) -> list[BatchEntry]:
    try:
        entries = decode_batch(body)
    except RemoteProtocolError as error:
        raise _illegal(str(error)) from error
    if not entries:
        raise _illegal("the batch contains no message")
    if header_properties.rstrip(b"\x02") in (b"", _WAIT_ONLY):
        return entries
    if len(header_properties) * len(entries) > _MAX_ADDED_BYTES:
        raise _illegal(
            f"the batch's properties, {len(header_properties)} bytes, would be stored with each of"
            f" its {len(entries)} messages: more than {_MAX_ADDED_BYTES} bytes"
        )
    try:
        more = {
            name: encode_properties({name: text})
            for name, text in decode_properties(header_properties).items()
        }
    except LocalProtocolError as error:
        raise _illegal(str(error)) from error
    return [BatchEntry(e.flag, e.body, _joined(e.properties, more)) for e in entries]


def _joined(properties: bytes, more: dict[str, bytes]) -> bytes:
    # The message's own property counts: 5.x producers put an id of the whole batch in the header,
    # which would replace the id of each message.
    own = decode_properties(properties)
    added = b"".join([pair for name, pair in more.items() if name not in own])
    if added and properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    return properties + added


def _illegal(why: str) -> BrokerError:
    return BrokerError(ResponseCode.MESSAGE_ILLEGAL, why)


@lru_cache(maxsize=4096)
def _host_of(peer: str) -> bytes:
    host, _, port = peer.rpartition(":")
    try:
        return encode_host(host.strip("[]"), int(port))
    except ValueError as error:
        raise InvalidCommand(f"the sender's address is {peer!r}: expected ip:port") from error
