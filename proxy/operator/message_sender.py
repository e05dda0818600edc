"""Sends one message of an operator to any topic. Any proxy can do it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.errors import BrokerError
from broker_core.names import Topic, check_name, is_internal_topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.key_hash import queue_index
from proxy.core.access.audit_record import Change
from proxy.downstream.outgoing import IllegalMessage, outgoing_message
from proxy.errors import UnknownName, WrongState
from proxy.upstream.context import UpstreamContext
from proxy.upstream.records.durable import check_on_disk

#: More than a request of the admin API can have.
_MOST_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to send: the caller, the reason, and its content."""

    by: str
    reason: str
    body: bytes
    key: str | None = None
    tag: str | None = None
    properties: Mapping[str, str] | None = None
    dry_run: bool = False


class MessageSender:
    """Sends messages, one object per process."""

    def __init__(self, context: UpstreamContext) -> None:
        self._context = context

    async def send(self, name: str, wish: NewMessage) -> dict[str, Any]:
        """Send a message to topic *name*: to the queue of its key, as producers do.

        Raises UnknownName, WrongState for a message or topic that is not allowed, RemotingError.
        """
        try:
            topic = Topic(check_name("topic", name))
        except ValueError as error:
            raise UnknownName(str(error)) from None
        if is_internal_topic(topic):
            raise WrongState(
                f"topic {topic!r} belongs to brokers and gateways, which write it: name a topic of"
                " an application"
            )
        try:
            message = outgoing_message(
                topic,
                wish.body,
                key=wish.key,
                tag=wish.tag,
                properties=wish.properties or {},
                max_body_bytes=_MOST_BODY_BYTES,
            )
        except IllegalMessage as error:
            raise WrongState(f"the message is not sent: {error}") from None
        client = self._context.client
        try:
            queues = await client.writable_queues(topic)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise UnknownName(f"there is no topic {topic!r}: see orderlane topics ls") from None
        if not queues:
            raise WrongState(f"topic {topic!r} has no writable queue: see its permissions")
        # Without a key the body decides, so that a dry run names the queue of the send after it.
        index = queue_index(wish.key, len(queues)) if wish.key else zlib.crc32(wish.body)
        to = queues[index % len(queues)]
        about = {"key": wish.key, "tag": wish.tag, "bytes": len(wish.body), "queue": to.qid}
        done = {"topic": topic, "keys": wish.key, "tag": wish.tag, "bytes": len(wish.body)}
        done |= {"to": to.qid, "sent": None, "message_id": None, "dry_run": wish.dry_run}
        if wish.dry_run:
            return done
        change = Change(
            actor=wish.by,
            verb="messages send",
            group="",
            reason=wish.reason,
            topic=topic,
            target=to.qid,
            before=None,
            after=about,
        )
        async with self._context.audit.change(change) as entry:
            receipt = await client.send(to, message)
            check_on_disk([receipt])
            sent = f"{receipt.queue.qid}@{receipt.offset}"
            entry.ended_as({**about, "sent": sent, "message_id": receipt.message_id})
        return {**done, "sent": sent, "message_id": receipt.message_id}
