"""Framed Thrift without I/O: bytes in, calls out; answers in, bytes out.

A frame is a 4-byte big-endian length and that many bytes. Its first byte tells the protocol: 0x82
compact, 0x80 binary; an answer comes in the protocol of its call. Source: the Thrift framed
transport, the message heads of its compact and binary protocols, and ``thrift.md`` section
"Transport".

Heads are read by hand, since the library's own way is pure Python and costs more than all the rest
of a small call. An answer's head is its call's with another message type, so name and sequence id
go back as they came.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from thrift.protocol import fastbinary  # without the C codec: 20 times slower, and no depth limit
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

_COMPACT_VERSION = 1
_BINARY_VERSION = 0x800100  # the three bytes before the message type
_LENGTH = struct.Struct(">i")
_BINARY_HEAD = struct.Struct(">Ii")  # version and type, bytes of the name

#: Elements of one list or map of a request: ten times the largest batch that settings allow. An
#: empty struct is one byte on the wire and 70 in memory.
MAX_CONTAINER = 100_000
#: Longest method name that is read; no real one has half of it.
MAX_NAME_BYTES = 64


#: Bytes that are kept of a frame that is passed over, its length included: any call's head fits.
KEPT_BYTES = 128

#: Bytes behind the list at the end of a result: its struct ends, and the result.
_STOPS = 2


class FrameError(Exception):
    """These bytes are no call: the connection that they came on has to be closed."""


@dataclass(slots=True)
class FrameBuffer:
    """Cuts a byte stream into frames; memory stays below the limit and one read."""

    max_frame_bytes: int
    #: Bytes of the frame that has begun, its length included; 0 while none has, or nobody knows.
    announced: int = 0
    _bytes: bytearray = field(default_factory=bytearray)
    _to_drop: int = 0

    def receive_data(self, data: bytes) -> None:
        """Take what was read."""
        if self._to_drop:
            data = self._kept(data)
        self._bytes += data

    def next_frame(self) -> bytes | None:
        """The next whole frame, or None. Raises FrameError for a length out of bounds."""
        if len(self._bytes) < 4 or self._to_drop:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        if not 0 < length <= self.max_frame_bytes:
            raise FrameError(
                f"a frame of {length} bytes was announced: it should have 1 to"
                f" {self.max_frame_bytes} (is this framed Thrift?)"
            )
        if len(self._bytes) < 4 + length:
            self.announced = 4 + length
            return None
        self.announced = 0
        frame = bytes(memoryview(self._bytes)[4 : 4 + length])
        if len(self._bytes) == 4 + length:  # nearly always: clients wait for their answers
            self._bytes = bytearray()
        else:
            del self._bytes[: 4 + length]
        return frame

    def pass_over(self) -> None:
        """Of the frame that has begun, of more than KEPT_BYTES, keep so many alone. ``next_frame``
        returns them once all of the frame has come, as if they were the whole.

        Caller: after ``next_frame`` returned None and ``announced`` is known.
        """
        self._to_drop = self.announced - max(len(self._bytes), KEPT_BYTES)
        del self._bytes[KEPT_BYTES:]
        _LENGTH.pack_into(self._bytes, 0, KEPT_BYTES - _LENGTH.size)
        self.announced = 0

    def _kept(self, data: bytes) -> bytes:
        """What is kept of *data* while a frame is passed over."""
        missing = KEPT_BYTES - len(self._bytes)
        head, rest = data[:missing], data[missing:]
        dropped = min(self._to_drop, len(rest))
        self._to_drop -= dropped
        return head + rest[dropped:]

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return len(self._bytes)


@dataclass(frozen=True, slots=True)
class _Codec:
    """One protocol: its C codec, and message heads."""

    decode: Callable[[Any, Any, list[Any]], None]
    encode: Callable[[Any, list[Any]], bytes]
    plain: Callable[[TMemoryBuffer], Any]  # for TApplicationException, which has no C codec
    read_head: Callable[[bytes], tuple[int, int, int]]  # message type, start and end of the name
    type_at: int  # where a head has its message type
    type_byte: Callable[[int], int]
    after_name: int  # bytes of a head behind the name
    empty: bytes  # the value of a binary field without bytes
    blob_length: Callable[[int], bytes]  # what stands before the bytes of a binary field


@dataclass(slots=True)
class _Source:
    """What the C decoders ask of a protocol object."""

    trans: TMemoryBuffer
    string_length_limit: int = 0x3FFFFFFF  # a longer one than its frame ends with the frame
    container_length_limit: int = MAX_CONTAINER


@dataclass(slots=True)
class Call:
    """One request, its arguments still undecoded."""

    name: str
    one_way: bool
    codec: _Codec
    _frame: bytes
    _head_bytes: int

    def decode(self, arguments: Any) -> Any:
        """Fill the ``*_args`` struct *arguments*. Raises FrameError if the bytes do not fit."""
        source = _Source(TMemoryBuffer(self._frame, self._head_bytes))
        try:
            self.codec.decode(arguments, source, [arguments.__class__, arguments.thrift_spec])
        except Exception as error:
            # The codecs raise anything from EOFError to OverflowError for bytes that do not fit.
            raise FrameError(f"the arguments of {self.name} cannot be read: {error!r}") from error
        return arguments

    def answer_frame(self, kind: int, payload: bytes) -> bytes:
        """The frame with *payload* under this call's head, its message type now *kind*."""
        return self.answer_head(kind, len(payload)) + payload

    def answer_head(self, kind: int, payload_bytes: int) -> bytes:
        """A frame up to its payload."""
        head = bytearray(self._frame[: self._head_bytes])
        head[self.codec.type_at] = self.codec.type_byte(kind)
        return _LENGTH.pack(len(head) + payload_bytes) + head


@dataclass(frozen=True, slots=True)
class Spliced:
    """A result that ends with the list *entries*, structs that end with an empty binary field.

    In the field of each go the bytes of *blobs*, which may be megabytes: no codec copies them.
    """

    result: Any
    entries: Sequence[Any]
    blobs: Sequence[Sequence[bytes]]


def decode_call(frame: bytes) -> Call:
    """The head of a call. Raises FrameError for anything else."""
    codec = _CODECS.get(frame[0])
    if codec is None:
        raise FrameError(
            f"a frame begins with 0x{frame[0]:02x}: it should be 0x82 (compact) or 0x80 (binary)"
        )
    try:
        kind, start, end = codec.read_head(frame)
        name = frame[start:end].decode()
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"a call's head cannot be read: {error.__class__.__name__}") from error
    head_bytes = end + codec.after_name
    if not 0 <= end - start <= MAX_NAME_BYTES:
        raise FrameError(f"a method's name of {end - start} bytes: 0 to {MAX_NAME_BYTES} are taken")
    if head_bytes > len(frame):
        raise FrameError("a call's head is cut short")
    if kind not in (TMessageType.CALL, TMessageType.ONEWAY):
        raise FrameError(f"message type {kind} is no call")
    return Call(name, kind == TMessageType.ONEWAY, codec, frame, head_bytes)


def encode_answer(call: Call, result: Any) -> bytes:
    """The frame that answers *call* with the generated ``*_result`` struct *result*."""
    payload = call.codec.encode(result, [result.__class__, result.thrift_spec])
    return call.answer_frame(TMessageType.REPLY, payload)


def encode_spliced(call: Call, spliced: Spliced) -> list[bytes]:
    """The frame that answers *call* with *spliced*, in pieces."""
    codec = call.codec
    result = spliced.result
    around = codec.encode(result, [result.__class__, result.thrift_spec])
    entries = [codec.encode(each, [each.__class__, each.thrift_spec]) for each in spliced.entries]
    begin = len(around) - _STOPS - sum(map(len, entries))
    own = bytearray(around[:begin])
    pieces: list[bytes] = []
    for entry, blobs in zip(entries, spliced.blobs, strict=True):
        own += entry[: -len(codec.empty) - 1]
        own += codec.blob_length(sum(map(len, blobs)))
        pieces += (bytes(own), *blobs)
        own = bytearray(entry[-1:])
    pieces.append(bytes(own) + around[-_STOPS:])
    head = call.answer_head(TMessageType.REPLY, sum(map(len, pieces)))
    return [head + pieces[0], *pieces[1:]]


def encode_failure(call: Call, kind: int, message: str) -> bytes:
    """The frame that answers *call* with a TApplicationException of that kind."""
    buffer = TMemoryBuffer()
    TApplicationException(kind, message).write(call.codec.plain(buffer))
    return call.answer_frame(TMessageType.EXCEPTION, buffer.getvalue())


def _compact_head(frame: bytes) -> tuple[int, int, int]:
    if frame[1] & 0x1F != _COMPACT_VERSION:
        raise FrameError(f"version {frame[1] & 0x1F} of the compact protocol: 1 is read")
    _, at = _varint(frame, 2)
    length, at = _varint(frame, at)
    return frame[1] >> 5, at, at + length


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    """A number of up to 32 bits at *at*, and where it ends."""
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise FrameError("a number in a call's head has more than 5 bytes")


def _to_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _binary_head(frame: bytes) -> tuple[int, int, int]:
    version, length = _BINARY_HEAD.unpack_from(frame)
    if version >> 8 != _BINARY_VERSION:
        raise FrameError(f"version 0x{version >> 8:06x} of the binary protocol: 0x800100 is read")
    return version & 0xFF, _BINARY_HEAD.size, _BINARY_HEAD.size + length


_CODECS = {
    0x82: _Codec(
        decode=fastbinary.decode_compact,
        encode=fastbinary.encode_compact,
        plain=TCompactProtocol,
        read_head=_compact_head,
        type_at=1,
        type_byte=lambda kind: kind << 5 | _COMPACT_VERSION,
        after_name=0,
        empty=b"\0",
        blob_length=_to_varint,
    ),
    0x80: _Codec(
        decode=fastbinary.decode_binary,
        encode=fastbinary.encode_binary,
        plain=TBinaryProtocol,
        read_head=_binary_head,
        type_at=3,
        type_byte=lambda kind: kind,
        after_name=4,  # the sequence id
        empty=bytes(4),
        blob_length=_LENGTH.pack,
    ),
}
