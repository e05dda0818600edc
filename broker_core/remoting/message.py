"""The stored message: one byte layout on the wire, in the commit log and in answers to a pull.

Source of the layouts: the stored-message and batch formats of Apache RocketMQ 4.9 and 5.x, all
integers big-endian. Encoding is the broker's affair (only it knows offsets), decoding the client's.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple

from broker_core.errors import LocalProtocolError, RemoteProtocolError
from broker_core.names import MAX_NAME_CHARS, Topic
from broker_core.remoting.compression import SYS_COMPRESSED, NotInflated, inflate

#: First marks of a stored message; V2 has a topic length of two bytes (5.1 and later).
MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
#: First mark of the filler at the end of a commit log segment.
MAGIC_BLANK = 0xCBD43194

#: Bytes of a V1 message with IPv4 hosts beside its body, topic and properties.
FIXED_BYTES = 91
_QUEUE_OFFSET_AT = 20
#: Where the commit log writes the message's own place in it.
PHYSICAL_OFFSET_AT = 28
MAX_PROPERTIES_BYTES = 32767

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"

#: RocketMQ's own properties: the application that produced the message did not set them.
RESERVED_PROPERTIES = frozenset(
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET"
    " BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION"
    " TRACE_ON UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME CLUSTER"
    " TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET".split()
)

SYS_TRANSACTION = 0xC
SYS_TRANSACTION_PREPARED = 0x4
SYS_TRANSACTION_COMMIT = 0x8
_SYS_BORN_V6 = 0x10
_SYS_STORE_V6 = 0x20
_CRC_MASK = 0x7FFFFFFF

# TOTALSIZE MAGIC BODYCRC QUEUEID FLAG QUEUEOFFSET PHYSICALOFFSET SYSFLAG BORNTIMESTAMP BORNHOST
# STORETIMESTAMP STOREHOST RECONSUMETIMES PREPAREDTRANSACTIONOFFSET BODYLEN, by the width of hosts.
_HEADS = {
    flags: struct.Struct(f">IIIiiqqiq{born}sq{store}siqi")
    for flags, born, store in ((0x00, 8, 8), (0x10, 20, 8), (0x20, 8, 20), (0x30, 20, 20))
}
_SYS_FLAG_LOW_BYTE_AT = 39
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
_BATCH_HEAD = struct.Struct(">iIiii")  # total, magic, crc, flag, body length

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """What a producer sends. *born_ms* 0 means: stamped when sent. *key* and *tag* become the
    properties KEYS and TAGS, over what *properties* says.
    """

    topic: Topic
    body: bytes
    key: str | None = field(default=None, kw_only=True)
    tag: str | None = field(default=None, kw_only=True)
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    born_ms: int = field(default=0, kw_only=True)
    flag: int = field(default=0, kw_only=True)  # the user's own bits
    sys_flag: int = field(default=0, kw_only=True)  # see the SYS_* bits

    def all_properties(self) -> dict[str, str]:
        """The properties as sent, key and tag among them."""
        merged = dict(self.properties)
        if self.key:
            merged[KEYS] = self.key
        if self.tag:
            merged[TAGS] = self.tag
        return merged


class BatchEntry(NamedTuple):
    """One message of a send request, as its producer encoded it."""

    flag: int
    body: bytes
    properties: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all messages of one send request share. Hosts are as ``encode_host`` gives them."""

    topic: Topic
    queue_id: int
    born_host: bytes
    store_host: bytes
    sys_flag: int = field(default=0, kw_only=True)
    born_ms: int = field(default=0, kw_only=True)
    reconsume_times: int = field(default=0, kw_only=True)
    #: Which message this one takes the place of: the physical offset of a half message, or below 0
    #: the ``DelayedPlace.number`` of a delayed one. 0: of none.
    prepared_offset: int = field(default=0, kw_only=True)


@dataclass(slots=True, eq=False)
class StoredMessage:
    """One message as a broker stored it.

    ``body`` is inflated if it was flagged as compressed. One that cannot be inflated
    (``compression.py``) is given as stored: ``body_is_compressed`` is then True, so that one broken
    message does not hide its neighbours. ``why_compressed`` has the reason.
    """

    topic: Topic
    queue_id: int
    queue_offset: int
    physical_offset: int
    born_ms: int
    store_ms: int
    body: bytes
    body_is_compressed: bool
    reconsume_times: int
    flag: int
    sys_flag: int
    size: int  # bytes of the whole stored message
    born_host: bytes
    store_host: bytes
    raw_properties: bytes
    prepared_offset: int = 0  # see Envelope
    _properties: dict[str, str] | None = field(default=None, repr=False)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, decoded at the first look."""
        if self._properties is None:
            self._properties = decode_properties(self.raw_properties)
        return self._properties

    @property
    def key(self) -> str | None:
        """The property KEYS, which may hold several keys with blanks between; None without."""
        return self.properties.get(KEYS)

    @property
    def why_compressed(self) -> str:
        """Why the body is still compressed, in half a sentence; empty if it is plain."""
        if self.body_is_compressed:
            try:
                inflate(self.body, self.sys_flag)
            except NotInflated as error:
                return str(error)
        return ""

    @property
    def tag(self) -> str | None:
        """The property TAGS; None without."""
        return self.properties.get(TAGS)

    @property
    def message_id(self) -> str:
        """The producer's id (UNIQ_KEY), else the id that names the place in the broker's log."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Store host and physical offset in upper-case hex, as a send is answered."""
        return offset_message_id(self.store_host, self.physical_offset)


def encode_host(ip: str, port: int) -> bytes:
    """The 8 (IPv4) or 20 (IPv6) bytes of a host; raises ValueError if *ip* is no IP address."""
    return ip_address(ip.partition("%")[0]).packed + struct.pack(">i", port)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """The id of the message at *physical_offset*: 32 hex digits, 56 with an IPv6 host."""
    return (store_host + _LONG.pack(physical_offset)).hex().upper()


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Name 0x01 value 0x02, repeated. Entries with an empty name or value are left out, as readers
    drop them. Raises LocalProtocolError on a separator inside, or above 32,767 bytes.
    """
    parts = []
    for name, value in properties.items():
        if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
            raise LocalProtocolError(
                f"property {name!r} must not contain the characters 0x01 and 0x02: {value!r}"
            )
        if name and value:
            parts.append(f"{name}\x01{value}\x02")
    raw = "".join(parts).encode("utf-8", "backslashreplace")
    if len(raw) > MAX_PROPERTIES_BYTES:
        raise LocalProtocolError(
            f"properties take {len(raw)} bytes; a message may carry {MAX_PROPERTIES_BYTES}"
        )
    return raw


def decode_properties(raw: bytes) -> dict[str, str]:
    r"""Inverse of ``encode_properties``; accepts a missing last 0x02 (4.9.1 to 5.1.4 write none).

    Bytes that are no UTF-8 are kept visible as ``\xNN``, so two different keys stay different.
    """
    properties = {}
    for pair in raw.decode("utf-8", "backslashreplace").split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def encode_stored(
    envelope: Envelope, entry: BatchEntry, *, queue_offset: int, store_ms: int
) -> bytearray:
    """One stored message (V1). PHYSICALOFFSET is 0 until the commit log gives it its place.

    Properties always end with their separator here: recovery knows a torn message by that.
    Raises LocalProtocolError if topic or properties are longer than the layout has room for.
    """
    topic, body, properties = envelope.topic.encode(), entry.body, entry.properties
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    if len(topic) > MAX_NAME_CHARS or len(properties) > MAX_PROPERTIES_BYTES:
        raise LocalProtocolError(
            f"topic of {len(topic)} bytes (at most {MAX_NAME_CHARS}) or properties of"
            f" {len(properties)} bytes (at most {MAX_PROPERTIES_BYTES}) too long to store"
        )
    born, store = envelope.born_host, envelope.store_host
    wide = (_SYS_BORN_V6 if len(born) > 8 else 0) | (_SYS_STORE_V6 if len(store) > 8 else 0)
    head = _HEADS[wide]
    tail = bytes((len(topic),)) + topic + _SHORT.pack(len(properties)) + properties
    message = bytearray(
        head.pack(
            head.size + len(body) + len(tail),
            MAGIC_V1,
            zlib.crc32(body) & _CRC_MASK,
            envelope.queue_id,
            entry.flag,
            queue_offset,
            0,
            (envelope.sys_flag & ~(_SYS_BORN_V6 | _SYS_STORE_V6)) | wide,
            envelope.born_ms,
            born,
            store_ms,
            store,
            envelope.reconsume_times,
            envelope.prepared_offset,
            len(body),
        )
    )
    message += body
    message += tail
    return message


def queue_offset_of(record: bytes) -> int:
    """The queue offset of a stored message. Raises struct.error if it is cut short before."""
    (offset,) = _LONG.unpack_from(record, _QUEUE_OFFSET_AT)
    return int(offset)


def store_ms_of(head: bytes) -> int:
    """The store time in the first 88 bytes of a stored message."""
    wide_born_host = head[_SYS_FLAG_LOW_BYTE_AT] & _SYS_BORN_V6
    store_ms: int = _LONG.unpack_from(head, 68 if wide_born_host else 56)[0]
    return store_ms


def decode_messages(buffer: Bytes, *, check_crc: bool = False) -> list[StoredMessage]:
    """All messages of a pull's body, in order.

    Raises RemoteProtocolError, naming the byte and what is wrong, unless *buffer* is a sequence of
    whole messages. *check_crc* also compares each body with its check sum (about 200 ns for 300
    bytes); the broker has checked what it read from disk, TCP what travelled.
    """
    data = bytes(buffer)  # no copy if it is bytes already
    messages = []
    position = 0
    while position < len(data):
        message = decode_message(data, position, check_crc=check_crc)
        messages.append(message)
        position += message.size
    return messages


def decode_message(
    data: bytes, position: int = 0, *, check_crc: bool = False, plain: bool = True
) -> StoredMessage:
    """The message at *position*; what follows it is not looked at. Raises as decode_messages.

    Without *plain* a compressed body is given as stored.
    """
    try:
        return _decode(data, position, check_crc, plain)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(
            f"stored message at byte {position} is cut short or garbled: {error}"
        ) from error


def _decode(data: bytes, position: int, check_crc: bool, plain: bool) -> StoredMessage:
    head = _HEADS[data[position + _SYS_FLAG_LOW_BYTE_AT] & 0x30]
    (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms,
        born_host, store_ms, store_host, reconsume_times, prepared_offset, body_bytes,
    ) = head.unpack_from(data, position)  # fmt: skip
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise _broken(position, f"magic is {magic:#010x}, not {MAGIC_V1:#x} or {MAGIC_V2:#x}")
    end = position + size
    body_at = position + head.size
    topic_at = body_at + body_bytes
    if body_bytes < 0 or end > len(data) or topic_at >= end:
        raise _broken(position, f"size {size} with a body of {body_bytes}, {len(data)} bytes held")
    body = data[body_at:topic_at]
    if check_crc and zlib.crc32(body) & _CRC_MASK != crc:
        raise _broken(position, "body does not match its check sum")
    if magic == MAGIC_V1:
        topic_bytes = data[topic_at]
        topic_at += 1
    else:
        (topic_bytes,) = _SHORT.unpack_from(data, topic_at)
        topic_at += 2
    properties_at = topic_at + topic_bytes
    (properties_bytes,) = _SHORT.unpack_from(data, properties_at)
    properties_at += 2
    if topic_bytes < 0 or properties_bytes < 0 or properties_at + properties_bytes != end:
        raise _broken(position, f"its parts do not add up to its size {size}")
    compressed = bool(sys_flag & SYS_COMPRESSED)
    if compressed and plain:
        with suppress(NotInflated):
            body, compressed = inflate(body, sys_flag), False
    return StoredMessage(
        Topic(data[topic_at : topic_at + topic_bytes].decode()),
        queue_id, queue_offset, physical_offset, born_ms, store_ms, body, compressed,
        reconsume_times, flag, sys_flag, size, born_host, store_host,
        data[properties_at:end], prepared_offset,
    )  # fmt: skip


def _broken(position: int, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"stored message at byte {position}: {why}")


def encode_batch(messages: Iterable[OutgoingMessage]) -> bytes:
    """Body of SEND_BATCH_MESSAGE (320); the messages must all go to one queue of one topic.

    Raises LocalProtocolError as ``encode_properties`` does.
    """
    parts: list[bytes] = []
    for message in messages:
        properties = encode_properties(message.all_properties())
        total = _BATCH_HEAD.size + len(message.body) + 2 + len(properties)
        parts += (
            _BATCH_HEAD.pack(total, 0, 0, message.flag, len(message.body)),
            message.body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(buffer: Bytes) -> list[BatchEntry]:
    """Inverse of ``encode_batch``. Raises RemoteProtocolError on anything but whole entries."""
    data = bytes(buffer)
    entries = []
    position = 0
    while position < len(data):
        try:
            total, _, _, flag, body_bytes = _BATCH_HEAD.unpack_from(data, position)
            body_at = position + _BATCH_HEAD.size
            properties_at = body_at + body_bytes + 2
            (properties_bytes,) = _SHORT.unpack_from(data, properties_at - 2)
        except struct.error as error:
            raise RemoteProtocolError(
                f"batch entry at byte {position} is cut short: {error}"
            ) from error
        end = properties_at + properties_bytes
        if body_bytes < 0 or properties_bytes < 0 or end != position + total or end > len(data):
            raise RemoteProtocolError(
                f"batch entry at byte {position}: size {total}, body {body_bytes} and properties"
                f" {properties_bytes} do not fit together in {len(data)} bytes"
            )
        entries.append(BatchEntry(flag, data[body_at : properties_at - 2], data[properties_at:end]))
        position = end
    return entries
