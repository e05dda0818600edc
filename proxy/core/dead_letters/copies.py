"""Copies of parked and dead-lettered messages, and recovery of the original. Pure.

A copy contains its message and what the gateway knows about it. The message is not changed:
``as_sent`` returns body and properties byte for byte.

- *Plain*, in nearly all cases: the properties of the message, plus those of the gateway.
- *Packed*: the encoded properties of the message are compressed into one property of the gateway.
  Used if they are not text, contain a separator or names that the gateway uses, or leave no room.
- *In the body*: packed after the body, if that property would be too long. This is also the
  shortest form of a copy, for a broker with a lower size limit.

Properties that brokers act on, or write, are left out, because a copy must be stored at once. They
are hidden from handlers in original messages, too.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum

from broker_core.errors import LocalProtocolError
from broker_core.names import Topic
from broker_core.remoting.compression import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_TYPE,
    NotInflated,
    deflate,
    inflate,
)
from broker_core.remoting.message import (
    KEYS,
    MAX_PROPERTIES_BYTES,
    RESERVED_PROPERTIES,
    TAGS,
    UNIQ_KEY,
    OutgoingMessage,
    StoredMessage,
    decode_properties,
    encode_properties,
    property_of,
)
from broker_core.remoting.raw_properties import changed_properties, storable_properties
from proxy.core.keys.order_key import named

#: Properties of a copy: the origin of its message (as in RocketMQ), its queue, its offset, the
#: ownership period of the copy, the failure, and the order key (as readable text, and its bytes in
#: base 85). In a parked copy the life of the topic follows its name (``topic_in_life``).
ORIGIN_TOPIC, ORIGIN_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
ORIGIN_QUEUE, ORIGIN_OFFSET, ORIGIN_EPOCH = (
    "ORDERLANE_QUEUE",
    "ORDERLANE_OFFSET",
    "ORDERLANE_EPOCH",
)
ATTEMPTS, REASON = "ORDERLANE_ATTEMPTS", "ORDERLANE_REASON"
ORDER_KEY, CHAIN = "ORDERLANE_ORDER_KEY", "ORDERLANE_CHAIN"
FIRST_FAILURE, LAST_FAILURE = "ORDERLANE_FIRST_FAILURE_MS", "ORDERLANE_LAST_FAILURE_MS"
#: Packing of the message's properties, if any; the full size of a body that was cut off.
SENT, CUT = "ORDERLANE_SENT", "ORDERLANE_CUT"

#: All of them: a message that has one of these itself is packed.
OF_COPIES = frozenset(
    (
        *(ORIGIN_TOPIC, ORIGIN_ID, ORIGIN_QUEUE, ORIGIN_OFFSET, ORIGIN_EPOCH, ATTEMPTS, REASON),
        *(ORDER_KEY, CHAIN, FIRST_FAILURE, LAST_FAILURE, SENT, CUT),
    )
)
#: Left out of copies and redriven messages; brokers write their own.
LEFT_OUT = RESERVED_PROPERTIES - {KEYS, TAGS, UNIQ_KEY, "BUYER_ID"}

_OF_COPIES_RAW = frozenset(name.encode() for name in OF_COPIES)
#: Texts for people: dropped if there is no room, and shortened in short copies.
_FOR_PEOPLE = REASON, ORDER_KEY
#: Properties that a packed copy repeats, for searches by key or id.
_SHOWN, _MAX_SHOWN = (KEYS, TAGS, UNIQ_KEY), 255
#: Leaves room for properties that brokers add and may count.
ROOM = MAX_PROPERTIES_BYTES - 512
_COMPRESSION = SYS_COMPRESSED | SYS_COMPRESSION_TYPE
_IN_PROPERTY, _IN_BODY, _IN_DEFLATED_BODY = "p", "b", "z"
_SYS_FLAG_AT, _SYS_FLAG = 36, struct.Struct(">i")
_NUMBER = re.compile(r"[0-9]{1,18}")
#: Not part of any topic's name.
_LIFE_MARK = "@"
#: Length of the beginning that is kept of a body that is cut off.
_CUT_BODY_BYTES = 256


class Form(Enum):
    """How much of the message a copy contains. *SHORT*: everything, in as few bytes as possible.
    *CUT*: everything but the body, of which only the beginning.
    """

    WHOLE = "whole"
    SHORT = "short"
    CUT = "cut"


def copied(
    stored: StoredMessage, about: Mapping[str, str], *, to: Topic, form: Form = Form.WHOLE
) -> OutgoingMessage:
    """Return the copy of *stored* for the topic *to*. *about*: values for OF_COPIES, any texts: one
    that cannot be stored, such as a reason given by a receiver, must not prevent the copy.
    """
    about = {name: _storable(text) for name, text in about.items()}
    if property_of(stored.raw_properties, UNIQ_KEY) is None:
        about = {**about, UNIQ_KEY: stored.message_id}  # the id that handlers see
    if form is Form.WHOLE and (beside := _beside(stored.raw_properties, about)) is not None:
        flags = stored.sys_flag & _COMPRESSION
        return _message(stored, beside, body_as_sent(stored), flags, to=to)
    packed = zlib.compress(storable_properties(stored.raw_properties))
    if form is Form.WHOLE:
        properties = {**_shown(stored), **about, SENT: _IN_PROPERTY + _text(packed)}
        if len(encode_properties(properties)) <= ROOM:
            flags = stored.sys_flag & _COMPRESSION
            return _message(stored, properties, body_as_sent(stored), flags, to=to)
        del properties[SENT]
    else:
        texts = {name: about[name][:_MAX_SHOWN] for name in _FOR_PEOPLE if name in about}
        properties = {**_shown(stored), **about, **texts}
    body, how = body_as_sent(stored), _IN_BODY
    if form is Form.SHORT and len(shorter := zlib.compress(body)) < len(body):
        how, body = _IN_DEFLATED_BODY, shorter
    if form is Form.CUT:
        properties[CUT] = str(len(body))
        body = body[:_CUT_BODY_BYTES]
    properties[SENT] = f"{how}{len(packed)}:{stored.sys_flag & _COMPRESSION}"
    return _message(stored, properties, body + packed, 0, to=to)


def as_sent(copy: StoredMessage) -> StoredMessage:
    """Return the original message of *copy*, at the copy's place; ``taken_from`` is the copy."""
    if copy.taken_from is not None:
        return copy
    raw = copy.raw_properties
    how = property_of(raw, SENT)
    try:
        if how is None:
            plain = changed_properties(raw, without=_OF_COPIES_RAW)
            return _taken(copy, copy.body, copy.body_is_compressed, copy.sys_flag, plain)
        if how.startswith(_IN_PROPERTY):
            plain = zlib.decompress(base64.b85decode(how[1:]))
            return _taken(copy, copy.body, copy.body_is_compressed, copy.sys_flag, plain)
        size, _, flags = how[1:].partition(":")
        return _out_of_body(copy, how[0], int(size), int(flags))
    except (ValueError, zlib.error):  # not a copy made by the gateway
        return _taken(copy, copy.body, copy.body_is_compressed, copy.sys_flag, raw)


def is_cut(copy: StoredMessage) -> str | None:
    """Return the size in bytes of the message's body if *copy* has not all of it; else None."""
    return property_of(copy.raw_properties, CUT)


def number_in(text: str | None) -> int | None:
    """Return the number that a property *text* is; None for any other text, also for one with more
    digits than any offset has: Python refuses to read thousands.
    """
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def topic_in_life(topic: Topic, life: int | None) -> str:
    """Return the text for ORIGIN_TOPIC of a parked copy. It is part of a property that proxies of
    all versions hide from handlers; none of them reads it from parked copies.
    """
    return topic if life is None else f"{topic}{_LIFE_MARK}{life}"


def packed_key(key: bytes | None) -> str:
    """Return the text for CHAIN of *key*; empty without a key, or for a long one, which readers
    compute from the original message.
    """
    return _text(key) if key is not None and len(key) <= 2 * _MAX_SHOWN else ""


def chain_in(copy: StoredMessage) -> bytes | None:
    """Return the key under which the message was parked; None if *copy* does not contain it."""
    text = property_of((copy.taken_from or copy).raw_properties, CHAIN)
    if text is None:
        return None
    try:
        return named(base64.b85decode(text))
    except ValueError:
        return None


def life_in(copy: StoredMessage) -> int | None:
    """Return the life of the topic of which the message of the parked *copy* is; None if unknown,
    as in copies of earlier versions.
    """
    text = property_of((copy.taken_from or copy).raw_properties, ORIGIN_TOPIC) or ""
    _, _, life = text.rpartition(_LIFE_MARK)
    return number_in(life) if _LIFE_MARK in text else None


def text_properties(raw: bytes) -> dict[str, str] | None:
    """Return the encoded properties *raw* as text if that is lossless; else None."""
    properties = decode_properties(raw)
    ended = raw if not raw or raw.endswith(b"\x02") else raw + b"\x02"
    try:
        says_all = encode_properties(properties) == ended == storable_properties(ended)
    except LocalProtocolError:
        return None
    return properties if says_all else None


def body_as_sent(stored: StoredMessage) -> bytes:
    """Return the body compressed if it was sent so: the plain one may exceed the broker's limit."""
    if stored.sys_flag & SYS_COMPRESSED and not stored.body_is_compressed:
        return deflate(stored.body, stored.sys_flag)
    return stored.body


def _beside(raw: bytes, about: Mapping[str, str]) -> dict[str, str] | None:
    """Return the properties *raw* as text together with *about*, if there is room; long texts for
    people are dropped first.
    """
    properties = text_properties(raw)
    if properties is None or properties.keys() & OF_COPIES:
        return None
    both = {name: text for name, text in properties.items() if name not in LEFT_OUT} | dict(about)
    for less in ("", *_FOR_PEOPLE):
        both.pop(less, None)
        if sum(map(_size_of, both.items())) <= ROOM:
            return both
    return None


def _size_of(entry: tuple[str, str]) -> int:
    return len("".join(entry).encode("utf-8", "backslashreplace")) + 2


def _shown(stored: StoredMessage) -> dict[str, str]:
    shown = {}
    for name in _SHOWN:
        text = property_of(stored.raw_properties, name) or ""
        if text and len(text) <= _MAX_SHOWN and "\x01" not in text and text.isprintable():
            shown[name] = text
    return shown


def _message(
    stored: StoredMessage, properties: dict[str, str], body: bytes, flags: int, *, to: Topic
) -> OutgoingMessage:
    key, tag = properties.pop(KEYS, None), properties.pop(TAGS, None)
    return OutgoingMessage(
        topic=to,
        body=body,
        key=key,
        tag=tag,
        properties=properties,
        born_ms=stored.born_ms,
        flag=stored.flag,
        sys_flag=flags,
    )


def _out_of_body(copy: StoredMessage, how: str, size: int, flags: int) -> StoredMessage:
    at = len(copy.body) - size
    if how not in (_IN_BODY, _IN_DEFLATED_BODY) or not 0 < size <= len(copy.body):
        raise ValueError(how)
    body, raw = copy.body[:at], zlib.decompress(copy.body[at:])
    if how == _IN_DEFLATED_BODY:
        body = zlib.decompress(body)
    compressed = bool(flags & SYS_COMPRESSED)
    if compressed:
        with suppress(NotInflated):  # the original could not be inflated either
            body, compressed = inflate(body, flags), False
    return _taken(copy, body, compressed, copy.sys_flag & ~_COMPRESSION | flags, raw)


def _taken(
    copy: StoredMessage, body: bytes, compressed: bool, sys_flag: int, raw: bytes
) -> StoredMessage:
    end = _SYS_FLAG_AT + _SYS_FLAG.size
    if property_of(raw, UNIQ_KEY) is None:
        name = property_of(copy.raw_properties, UNIQ_KEY)
        raw = changed_properties(raw, more={UNIQ_KEY: name} if name else None)
    return StoredMessage(
        topic=copy.topic,
        queue_offset=copy.queue_offset,
        born_ms=copy.born_ms,
        size=copy.size,
        body=body,
        body_is_compressed=compressed,
        head=copy.head[:_SYS_FLAG_AT] + _SYS_FLAG.pack(sys_flag) + copy.head[end:],
        raw_properties=raw,
        taken_from=copy,
    )


def _storable(text: str) -> str:
    """Return *text* with separators of properties as blanks, and halves of surrogate pairs as
    question marks.
    """
    text = text.replace("\x01", " ").replace("\x02", " ")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _text(data: bytes) -> str:
    return base64.b85encode(data).decode()
