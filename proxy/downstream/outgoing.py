"""Validates and converts messages of thin clients for brokers. Pure, except for unique id and birth
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.client.producer import Outbound
from broker_core.client.sending import size_of, with_id
from broker_core.clock import wall_ms
from broker_core.errors import LocalProtocolError
from broker_core.names import INTERNAL_PREFIX, Topic, check_name
from broker_core.remoting.key_hash import place_of
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage, is_reserved

MAX_KEY_CHARS = MAX_TAG_CHARS = 255


class IllegalMessage(Exception):
    """A message that no broker would accept; the text says why."""


def topic_named(name: str | None) -> Topic:
    """Return the topic. Raises IllegalMessage for an invalid name, or an internal topic: a message
    there would be read as an ownership record and decide the state of a group.
    """
    try:
        topic = Topic(check_name("topic", name or ""))
    except ValueError as error:
        raise IllegalMessage(str(error)) from None
    if topic.startswith(INTERNAL_PREFIX):
        raise IllegalMessage(
            f"topic {topic!r} is internal: producers cannot send to topics"
            f" whose names begin with {INTERNAL_PREFIX!r}"
        )
    return topic


def outgoing_message(
    topic: Topic,
    body: bytes,
    *,
    key: str | None,
    tag: str | None,
    properties: Mapping[str, str],
    max_body_bytes: int,
) -> OutgoingMessage:
    """Return the message with a unique id and the current time. Raises IllegalMessage."""
    if not 0 < len(body) <= max_body_bytes:
        raise IllegalMessage(f"a body of {len(body)} bytes: expected 1 to {max_body_bytes}")
    for what, text, limit in (("key", key, MAX_KEY_CHARS), ("tag", tag, MAX_TAG_CHARS)):
        if text is not None and len(text) > limit:
            raise IllegalMessage(f"a {what} of {len(text)} characters: the limit is {limit}")
    for name, value in properties.items():
        if name != UNIQ_KEY and is_reserved(name):
            raise IllegalMessage(f"property {name!r} is reserved by the broker: rename it")
        if not name or not value:
            raise IllegalMessage(f"property {name!r} with value {value!r}: neither may be empty")
    message = with_id(
        OutgoingMessage(
            topic=topic, body=body, key=key, tag=tag, properties=dict(properties), born_ms=wall_ms()
        )
    )
    try:
        size_of(message)
    except LocalProtocolError as error:
        raise IllegalMessage(str(error)) from None
    return message


def outbound(message: Any, *, max_body_bytes: int) -> Outbound:
    """Return the converted Message of a send and its destination. Raises IllegalMessage."""
    if message is None:
        raise IllegalMessage("the request has no message")
    topic = topic_named(message.topic)
    body = message.body if message.body is not None else (message.value or "").encode()
    outgoing = outgoing_message(
        topic,
        body,
        key=message.key or None,
        tag=message.tags or None,
        properties=message.properties or {},
        max_body_bytes=max_body_bytes,
    )
    if message.qid is not None:
        return Outbound(outgoing, queue=str(message.qid))
    partition = -1 if message.partitionId is None else int(message.partitionId)
    if partition >= 0:
        return Outbound(outgoing, queue=partition)
    if partition < -1:  # DDMQ's clients use -2 for any queue
        return Outbound(outgoing)
    if message.hashId is not None:
        return Outbound(outgoing, int(message.hashId))
    return Outbound(outgoing, place_of(message.key))
