"""The stored message: one byte layout on the wire, in the commit log and in answers to a pull.

Source of the layouts: the stored-message and batch formats of Apache RocketMQ 4.9 and 5.x, all
integers big-endian. Brokers encode (only they know offsets), clients decode.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from typing import Any

from broker_core.errors import LocalProtocolError, RemoteProtocolError
from broker_core.names import Topic
from broker_core.remoting.compression import SYS_COMPRESSED, NotInflated, inflate
from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.record_checksum import (
    CHECKSUM_BYTES,
    NAMED,
    SYS_CHECKED,
    is_checksum_right,
)

#: Magic numbers of a stored message; V2 has a topic length of two bytes (5.1 and later).
MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
_MAGICS = (MAGIC_V1, MAGIC_V2)
#: Magic number of the filler at the end of a commit log segment.
MAGIC_BLANK = 0xCBD43194

#: Bytes of a V1 message with IPv4 hosts, besides body, topic and properties.
FIXED_BYTES = 91
_QUEUE_OFFSET_AT = 20
#: Position of the physical offset, which the commit log writes.
PHYSICAL_OFFSET_AT = 28
MAX_PROPERTIES_BYTES = 32767
#: Consecutive zero bytes allowed in properties. One more, after a length whose low byte is zero,
#: would be a sector of zeros, as left in a message by a power failure.
MAX_ZEROS_IN_PROPERTIES = 510

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"

#: RocketMQ's own properties, which applications do not set.
RESERVED_PROPERTIES = frozenset(
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET"
    " BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION"
    " TRACE_ON UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME CLUSTER"
    " TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET CHECK_IMMUNITY_TIME_IN_SECONDS"
    " TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_DELAY_LEVEL TIMER_OUT_MS"
    " TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY INNER_NUM INNER_BASE"
    " INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET POP_CK POP_CK_OFFSET 1ST_POP_TIME __CRC32#"
    " EXTEND_UNIQ_INFO".split()
)
#: Further names that producers do not set: brokers act on them or write them, and RocketMQ's own
#: clients refuse them, too. __SHARDINGKEY is not how clients of the proxy choose the queue.
_NOT_SET = frozenset(
    "DUP_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME MSG_TYPE"
    " __transactionId__ __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC"
    " DLQ_ORIGIN_MESSAGE_ID __SHARDINGKEY".split()
)
#: Brokers drop properties with this prefix.
_TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

SYS_TRANSACTION = 0xC
SYS_TRANSACTION_PREPARED = 0x4
SYS_TRANSACTION_COMMIT = 0x8
SYS_BORN_V6 = 0x10
SYS_STORE_V6 = 0x20
SYS_V6 = SYS_BORN_V6 | SYS_STORE_V6
CRC_MASK = 0x7FFFFFFF

# TOTALSIZE MAGIC BODYCRC QUEUEID FLAG QUEUEOFFSET PHYSICALOFFSET SYSFLAG BORNTIMESTAMP BORNHOST
# STORETIMESTAMP STOREHOST RECONSUMETIMES PREPAREDTRANSACTIONOFFSET BODYLEN, by the width of hosts.
RECORD_HEADS = {
    flags: struct.Struct(f">IIIiiqqiq{born}sq{store}siqi")
    for flags, born, store in ((0x00, 8, 8), (0x10, 20, 8), (0x20, 8, 20), (0x30, 20, 20))
}
_SYS_FLAG_LOW_BYTE_AT = 39
#: The fields that a decoder needs: size, magic, checksum, queue offset, SYSFLAG, born time, body
#: length; the last one is right only if both hosts are IPv4.
_NEEDED = struct.Struct(">III8xq8xiq36xi")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")

_KEYS_FIRST, _KEYS_BEHIND = b"KEYS\x01", b"\x02KEYS\x01"
_SPACE = 0x20
_NAMED_END = len(NAMED) - CHECKSUM_BYTES

Bytes = bytes | bytearray | memoryview


class Check(Enum):
    """The checksums that a decoder verifies."""

    NONE = "none"
    BODIES = "those of bodies, in records without one of the whole record"
    ALL = "those of records, or of bodies in records without"


def is_reserved(name: str) -> bool:
    """Return whether applications may not set a property *name*; UNIQ_KEY is one, with a field of
    its own in most clients.
    """
    return name in RESERVED_PROPERTIES or name in _NOT_SET or name.startswith(_TRANSIENT_PREFIX)


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send. *born_ms* 0: set when sent.

    *key* and *tag* become the properties KEYS and TAGS, replacing those in *properties*.
    """

    topic: Topic
    body: bytes
    key: str | None = field(default=None, kw_only=True)
    tag: str | None = field(default=None, kw_only=True)
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    encoded: bytes = field(default=b"", kw_only=True)  # encoded properties that come first
    born_ms: int = field(default=0, kw_only=True)
    flag: int = field(default=0, kw_only=True)  # the application's own bits
    sys_flag: int = field(default=0, kw_only=True)  # see the SYS_* bits

    def all_properties(self) -> dict[str, str]:
        """Return the properties as sent, including key and tag."""
        merged = dict(self.properties)
        if self.key:
            merged[KEYS] = self.key
        if self.tag:
            merged[TAGS] = self.tag
        return merged

    def encoded_properties(self) -> bytes:
        """Return all properties as sent. Raise LocalProtocolError as ``encode_properties``."""
        more = encode_properties(self.all_properties())
        if not self.encoded:
            return more
        raw = self.encoded if self.encoded.endswith(b"\x02") else self.encoded + b"\x02"
        _check_length(raw := raw + more)
        return raw


@dataclass(slots=True, eq=False)
class StoredMessage:
    """One message as stored by a broker. Made by ``decode_message`` and ``decode_messages``.

    ``body`` is inflated if it was flagged as compressed. If that fails (``compression.py``), it
    stays as stored: ``body_is_compressed`` is then True and ``why_compressed`` the reason, so that
    one broken message does not hide its neighbours.

    Attributes contain what every reader needs; the rest is decoded at each access, in about 0.3 µs,
    from the head of the record: most messages never need it.
    """

    topic: Topic
    queue_offset: int
    born_ms: int
    size: int  # of the whole stored message
    body: bytes
    body_is_compressed: bool
    head: bytes = field(repr=False)  # the bytes before the body
    raw_properties: bytes
    _properties: dict[str, str] | None = field(default=None, repr=False)
    #: The copy from which it was unpacked; None for other messages.
    taken_from: StoredMessage | None = field(default=None, repr=False)

    @property
    def queue_id(self) -> int:
        """Id of its queue in the topic."""
        return self._of_head(3)

    @property
    def flag(self) -> int:
        """The application's own bits."""
        return self._of_head(4)

    @property
    def physical_offset(self) -> int:
        """Position in the broker's log."""
        return self._of_head(6)

    @property
    def sys_flag(self) -> int:
        """See the SYS_* bits; without that of the record's checksum."""
        return self._of_head(7) & ~SYS_CHECKED

    @property
    def born_host(self) -> bytes:
        """The producer's address, as ``encode_host`` returns it."""
        return bytes(self._fields()[9])

    @property
    def store_ms(self) -> int:
        """Store time, in milliseconds since 1970."""
        return self._of_head(10)

    @property
    def store_host(self) -> bytes:
        """The broker's address, as ``encode_host`` returns it."""
        return bytes(self._fields()[11])

    @property
    def reconsume_times(self) -> int:
        """Number of times that RocketMQ's consumers sent it back."""
        return self._of_head(12)

    @property
    def prepared_offset(self) -> int:
        """See ``Envelope``."""
        return self._of_head(13)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, decoded at the first access."""
        if self._properties is None:
            self._properties = decode_properties(self.raw_properties)
        return self._properties

    @property
    def key(self) -> str | None:
        """The property KEYS as sent, which may contain several keys with blanks in between, or
        None.
        """
        return self.properties.get(KEYS)

    @property
    def key_bytes(self) -> bytes | None:
        """``key`` as UTF-8 without surrounding blanks (``plain_key``), or None if it is empty.

        Found without decoding the properties.
        """
        raw = self.raw_properties
        begin = raw.rfind(_KEYS_BEHIND) + 1
        if begin or raw.startswith(_KEYS_FIRST):
            begin += len(_KEYS_FIRST)
            end = raw.find(b"\x02", begin)
            found = raw[begin:] if end < 0 else raw[begin:end]
            if found and found[0] > _SPACE < found[-1] and found.isascii():
                return found
            key = plain_key(
                self.key or ""
            )  # it may be invalid UTF-8, empty, or surrounded by blanks
            return key.encode() or None
        return None

    @property
    def why_compressed(self) -> str:
        """Why the body is still compressed, the rest of a sentence; empty if it is plain."""
        if self.body_is_compressed:
            try:
                inflate(self.body, self.sys_flag)
            except NotInflated as error:
                return str(error)
        return ""

    @property
    def tag(self) -> str | None:
        """The property TAGS, or None."""
        return self.properties.get(TAGS)

    @property
    def message_id(self) -> str:
        """The producer's id (UNIQ_KEY), or the id with the position in the broker's log."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Store host and physical offset in upper-case hex, as in the answer to a send."""
        return offset_message_id(self.store_host, self.physical_offset)

    def _of_head(self, number: int) -> int:
        return int(self._fields()[number])

    def _fields(self) -> tuple[Any, ...]:
        return RECORD_HEADS[self.head[_SYS_FLAG_LOW_BYTE_AT] & SYS_V6].unpack(self.head)


def encode_host(ip: str, port: int) -> bytes:
    """Return the 8 (IPv4) or 20 (IPv6) bytes of a host; raise ValueError for an invalid *ip*."""
    return ip_address(ip.partition("%")[0]).packed + struct.pack(">i", port)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the id of the message at *physical_offset*: 32 hex digits, 56 with an IPv6 host."""
    return (store_host + _LONG.pack(physical_offset)).hex().upper()


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode as name 0x01 value 0x02, repeated, without entries that have an empty name or value.

    Raises LocalProtocolError for a separator or half a surrogate pair in it, or above 32,767 bytes.
    """
    parts = []
    for name, value in properties.items():
        if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
            raise LocalProtocolError(
                f"property {name!r} must not contain the characters 0x01 and 0x02: {value!r}"
            )
        if name and value:
            parts.append(f"{name}\x01{value}\x02")
    try:
        raw = "".join(parts).encode()
    except UnicodeEncodeError as error:
        shown = error.object[max(0, error.start - 20) : error.start + 20]
        raise LocalProtocolError(
            f"properties must be text, without half a surrogate pair: {shown!r}"
        ) from None
    _check_length(raw)
    return raw


def _check_length(raw: bytes) -> None:
    if len(raw) > MAX_PROPERTIES_BYTES:
        raise LocalProtocolError(
            f"properties take {len(raw)} bytes; a message may carry {MAX_PROPERTIES_BYTES}"
        )


def decode_properties(raw: bytes) -> dict[str, str]:
    r"""Inverse of ``encode_properties``; accepts a missing last 0x02 (4.9.1 to 5.1.4 omit it).

    Bytes that are not UTF-8 become ``\xNN``, so that different keys stay different.
    """
    properties = {}
    for pair in raw.decode("utf-8", "backslashreplace").split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def property_of(raw: bytes, name: str) -> str | None:
    """Return one of the encoded properties *raw*, or None: faster than decoding all."""
    mark = name.encode() + b"\x01"
    if (at := raw.rfind(b"\x02" + mark)) >= 0:  # the last one counts
        start = at + 1 + len(mark)
    elif raw.startswith(mark):
        start = len(mark)
    else:
        return None
    end = raw.find(b"\x02", start)
    return raw[start : len(raw) if end < 0 else end].decode("utf-8", "backslashreplace") or None


def queue_offset_of(record: bytes, at: int = 0) -> int:
    """Return the queue offset of the stored message at byte *at*. Raise struct.error if it is too
    short.
    """
    (offset,) = _LONG.unpack_from(record, at + _QUEUE_OFFSET_AT)
    return int(offset)


def store_ms_of(head: bytes) -> int:
    """Return the store time in the first 88 bytes of a stored message."""
    wide_born_host = head[_SYS_FLAG_LOW_BYTE_AT] & SYS_BORN_V6
    store_ms: int = _LONG.unpack_from(head, 68 if wide_born_host else 56)[0]
    return store_ms


def decode_messages(
    buffer: Bytes,
    *,
    check_crc: bool = False,
    check_bodies: bool = False,
    most_inflated_bytes: int | None = None,
) -> list[StoredMessage]:
    """Decode all messages of a pull's body, in order.

    Raises RemoteProtocolError that names the byte and the reason unless *buffer* consists of whole
    messages. *check_crc* also verifies the checksum of each record, or of its body if it has no
    other (about 400 ns for 300 bytes); *check_bodies* only the latter: the broker that writes
    checksums of records verifies them itself. Once inflated bodies reach *most_inflated_bytes*,
    later messages are omitted.
    """
    data = bytes(buffer)  # not copied if it is bytes already
    limit = sys.maxsize if most_inflated_bytes is None else most_inflated_bytes
    check = Check.ALL if check_crc else Check.BODIES if check_bodies else Check.NONE
    return _decode(data, 0, len(data), check, True, limit) if data else []


def decode_message(
    data: bytes,
    position: int = 0,
    *,
    check_crc: bool = False,
    check_bodies: bool = False,
    plain: bool = True,
) -> StoredMessage:
    """Decode the message at *position*, ignoring what follows. Raise as decode_messages.

    Without *plain* a compressed body stays as stored.
    """
    check = Check.ALL if check_crc else Check.BODIES if check_bodies else Check.NONE
    return _decode(data, position, position + 1, check, plain, sys.maxsize)[0]


def _decode(
    data: bytes, position: int, until: int, check: Check, plain: bool, most_inflated: int
) -> list[StoredMessage]:
    """Decode the messages that begin before *until*, at least the one at *position*.

    One loop: every message of a proxy passes here, and calls would cost as much as the rest.
    """
    messages: list[StoredMessage] = []
    raw_topic, topic, needed = b"", Topic(""), _NEEDED.unpack_from
    checks_bodies, checks_records = check is not Check.NONE, check is Check.ALL
    try:
        while True:
            size, magic, crc, offset, sys_flag, born_ms, body_bytes = needed(data, position)
            body_at, end = position + _NEEDED.size, position + size
            if sys_flag & SYS_V6:
                body_at = position + RECORD_HEADS[sys_flag & SYS_V6].size
                (body_bytes,) = _INT.unpack_from(data, body_at - 4)
            topic_at = body_at + body_bytes
            if body_bytes < 0 or topic_at >= end or end > len(data) or magic not in _MAGICS:
                raise _bad_head(magic, size, body_bytes, len(data))
            body = data[body_at:topic_at]
            if checks_bodies:
                if sys_flag & SYS_CHECKED == 0:
                    if zlib.crc32(body) & CRC_MASK != crc:
                        raise _Bad("body does not match its checksum")
                elif checks_records and not is_checksum_right(data, position, end):
                    raise _Bad("it does not match its checksum")
            if magic == MAGIC_V1:
                topic_at += 1
                properties_at = topic_at + data[topic_at - 1] + 2
            else:
                topic_at += 2
                properties_at = topic_at + (data[topic_at - 2] << 8 | data[topic_at - 1]) + 2
            if end - properties_at != data[properties_at - 2] << 8 | data[properties_at - 1]:
                raise _Bad(f"its parts do not add up to its size {size}")
            if data[topic_at : properties_at - 2] != raw_topic:  # otherwise the same as before
                raw_topic = data[topic_at : properties_at - 2]
                topic = Topic(raw_topic.decode())
            compressed = sys_flag & SYS_COMPRESSED != 0
            if compressed and plain:
                body, compressed = _plain(body, sys_flag)
                most_inflated -= len(body)
            head, properties = data[position:body_at], data[properties_at:end]
            if properties[-CHECKSUM_BYTES:_NAMED_END] == NAMED:
                properties = properties[:-CHECKSUM_BYTES]
            messages.append(
                StoredMessage(topic, offset, born_ms, size, body, compressed, head, properties)
            )
            position = end
            if position >= until or most_inflated <= 0:
                return messages
    except (struct.error, IndexError, UnicodeDecodeError, _Bad) as error:
        why = str(error) if isinstance(error, _Bad) else f"cut short or garbled: {error}"
        raise RemoteProtocolError(f"stored message at byte {position}: {why}") from error


class _Bad(Exception):
    """The reason why a stored message is invalid, the rest of a sentence."""


def _bad_head(magic: int, size: int, body_bytes: int, held: int) -> _Bad:
    if magic not in _MAGICS:
        return _Bad(f"magic is {magic:#010x}, not {MAGIC_V1:#x} or {MAGIC_V2:#x}")
    return _Bad(f"size {size} with a body of {body_bytes}, {held} bytes held")


def _plain(body: bytes, sys_flag: int) -> tuple[bytes, bool]:
    """Return the inflated body and False, or the original and True if that fails."""
    try:
        return inflate(body, sys_flag), False
    except NotInflated:
        return body, True
