"""Copies of messages that are parked or given up, and the messages as they were sent. Pure.

Beside what its message had, a copy says what the gateway knows of it. Nothing of the message is
changed for that: ``as_sent`` gives body and properties back byte for byte.

- *Plain*, as nearly all are: the properties of the message, and those of the gateway beside them.
- *Packed*: the encoded properties of the message stand, compressed, in one property of the gateway.
  So it is done where they are no text or hold a separator, where they have names that the gateway
  uses itself, or where there is no room beside them.
- *In the body*: packed behind the body, if that property would be too long. This is also the
  shortest form of a copy, for a broker that takes no longer one.

What brokers act on, or write, is left out: a copy is to stand there at once, and on disk. No
handler sees such properties, of the message neither.
"""

from __future__ import annotations

import base64
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

#: Properties of a copy: where its message came from (as RocketMQ has them), its queue, its offset,
#: the ownership period that the copy was made in, what failed, and its order key (the text as
#: people read it, the bytes in base 85).
ORIGIN_TOPIC, ORIGIN_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
ORIGIN_QUEUE, ORIGIN_OFFSET, ORIGIN_EPOCH = (
    "ORDERLANE_QUEUE",
    "ORDERLANE_OFFSET",
    "ORDERLANE_EPOCH",
)
ATTEMPTS, REASON = "ORDERLANE_ATTEMPTS", "ORDERLANE_REASON"
ORDER_KEY, CHAIN = "ORDERLANE_ORDER_KEY", "ORDERLANE_CHAIN"
FIRST_FAILURE, LAST_FAILURE = "ORDERLANE_FIRST_FAILURE_MS", "ORDERLANE_LAST_FAILURE_MS"
#: How the properties of the message are packed, if they are; that its body is missing.
SENT, CUT = "ORDERLANE_SENT", "ORDERLANE_CUT"

#: All of them: a copy of a message that has one of these itself is packed.
OF_COPIES = frozenset(
    (
        *(ORIGIN_TOPIC, ORIGIN_ID, ORIGIN_QUEUE, ORIGIN_OFFSET, ORIGIN_EPOCH, ATTEMPTS, REASON),
        *(ORDER_KEY, CHAIN, FIRST_FAILURE, LAST_FAILURE, SENT, CUT),
    )
)
#: What a copy and a message that goes back do not take along; beside it brokers write their own.
LEFT_OUT = RESERVED_PROPERTIES - {KEYS, TAGS, UNIQ_KEY, "BUYER_ID"}

_OF_COPIES_RAW = frozenset(name.encode() for name in OF_COPIES)
#: Texts for people: they give way where there is no room, and are short in short copies.
_FOR_PEOPLE = REASON, ORDER_KEY
#: What a packed copy shows of its message, for those who look for it by key or id.
_SHOWN, _MAX_SHOWN = (KEYS, TAGS, UNIQ_KEY), 255
#: Brokers add some of their own, and may count those.
ROOM = MAX_PROPERTIES_BYTES - 512
_COMPRESSION = SYS_COMPRESSED | SYS_COMPRESSION_TYPE
_IN_PROPERTY, _IN_BODY, _IN_DEFLATED_BODY = "p", "b", "z"
_SYS_FLAG_AT, _SYS_FLAG = 36, struct.Struct(">i")
#: So much of its message's body a copy keeps that has none of it else.
_CUT_BODY_BYTES = 256


class Form(Enum):
    """How much a copy takes along. *SHORT*: everything, in as few bytes as possible. *CUT*: all but
    the body, of which it has a beginning.
    """

    WHOLE = "whole"
    SHORT = "short"
    CUT = "cut"


def copied(
    stored: StoredMessage, about: Mapping[str, str], *, to: Topic, form: Form = Form.WHOLE
) -> OutgoingMessage:
    """The copy of *stored* for the topic *to*. *about*: what is known of it, by OF_COPIES."""
    if property_of(stored.raw_properties, UNIQ_KEY) is None:
        about = {**about, UNIQ_KEY: stored.message_id}  # handlers know it by that
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
    """The message that *copy* was made of, at the place of the copy; ``taken_from`` is the copy."""
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
    except (ValueError, zlib.error):  # no copy of ours
        return _taken(copy, copy.body, copy.body_is_compressed, copy.sys_flag, raw)


def is_cut(copy: StoredMessage) -> str | None:
    """How many bytes the body of its message has, if *copy* has not all of it; else None."""
    return property_of(copy.raw_properties, CUT)


def packed_key(key: bytes | None) -> str:
    """The text for CHAIN of a *key*; empty if there is none, or it is so long that it is computed
    from the message that the copy gives back.
    """
    return _text(key) if key is not None and len(key) <= 2 * _MAX_SHOWN else ""


def chain_in(copy: StoredMessage) -> bytes | None:
    """The key that its message was parked under; None if *copy* does not say."""
    text = property_of((copy.taken_from or copy).raw_properties, CHAIN)
    if text is None:
        return None
    try:
        return named(base64.b85decode(text))
    except ValueError:
        return None


def text_properties(raw: bytes) -> dict[str, str] | None:
    """The encoded properties *raw* as text, if that says everything that they hold; else None."""
    properties = decode_properties(raw)
    ended = raw if not raw or raw.endswith(b"\x02") else raw + b"\x02"
    try:
        says_all = encode_properties(properties) == ended == storable_properties(ended)
    except LocalProtocolError:
        return None
    return properties if says_all else None


def body_as_sent(stored: StoredMessage) -> bytes:
    """Compressed if it came so: its plain bytes may be more than the broker takes."""
    if stored.sys_flag & SYS_COMPRESSED and not stored.body_is_compressed:
        return deflate(stored.body, stored.sys_flag)
    return stored.body


def _beside(raw: bytes, about: Mapping[str, str]) -> dict[str, str] | None:
    """The properties *raw*, as text, and those *about* them, if there is room; long texts for
    people give way.
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
        with suppress(NotInflated):  # nor could it be where the message stood
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


def _text(data: bytes) -> str:
    return base64.b85encode(data).decode()
