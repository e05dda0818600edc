"""Framed Thrift without I/O: splits bytes into calls and encodes answers.

A frame is a 4-byte big-endian length and that many bytes. Its first byte identifies the protocol:
0x82 compact, 0x80 binary; an answer uses the protocol of its call. Source: the Thrift framed
transport, the message heads of its compact and binary protocols, and ``thrift.md`` section
"Transport".

Heads are parsed here because the library's pure Python parser takes longer than the rest of a small
call. An answer's head is its call's with another message type, so name and sequence id are returned
unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NoReturn

from thrift.protocol import fastbinary  # without the C codec: 20 times slower, and no depth limit
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from proxy.downstream.port.elements.binary import count_binary
from proxy.downstream.port.elements.budget import Budget, Uncountable
from proxy.downstream.port.elements.compact import count_compact

_COMPACT_VERSION = 1
_BINARY_VERSION = 0x800100  # the three bytes before the message type
_LENGTH = struct.Struct(">i")
_BINARY_HEAD = struct.Struct(">Ii")  # version and type, bytes of the name

#: Largest number of elements in a list or map of a request: ten times the largest batch in the
#: settings. An empty struct is one byte on the wire and 70 in memory.
MAX_CONTAINER = 100_000
#: Longest accepted method name; real ones are less than half as long.
MAX_NAME_BYTES = 64


#: Bytes kept of a skipped frame, including its length: enough for any call's head.
KEPT_BYTES = 128

#: A frame from this size on is collected so that it need not be copied when it is complete.
_LARGE_BYTES = 65_536

#: Bytes after the list at the end of a result: the ends of its struct and of the result.
_STOPS = 2

#: Attributes of classes take longer to look up.
_CALL, _ONE_WAY, _REPLY = TMessageType.CALL, TMessageType.ONEWAY, TMessageType.REPLY
_REQUESTS = (_CALL, _ONE_WAY)


class FrameError(Exception):
    """Bytes that are not a valid call: the connection must be closed."""


@dataclass(slots=True)
class FrameBuffer:
    """Splits a byte stream into frames; memory stays below the limit plus one read."""

    max_frame_bytes: int
    #: Size of the incomplete frame including its length; 0 if none has begun or its size is
    #: unknown.
    announced: int = 0
    #: Number of buffered bytes.
    buffered: int = 0
    # Bytes as received while they are one read, which is usually one frame: then nothing is copied.
    _bytes: bytes | bytearray = b""
    _large: BytesIO | None = None  # the incomplete frame without its length, if it is large
    _to_drop: int = 0

    def receive_data(self, data: bytes) -> None:
        """Append received bytes."""
        if not (self._bytes or self._large or self._to_drop):  # the usual case
            self._bytes, self.buffered = data, len(data)
            return
        if self._to_drop:
            data = self._kept(data)
        if self._large is not None:
            missing = self.announced - _LENGTH.size - self._large.tell()
            self._large.write(data[:missing])
            data = data[missing:]
        if self._bytes:
            self._bytes = self._grown()
            self._bytes += data
        else:
            self._bytes = data
        self._count()

    def next_frame(self) -> bytes | None:
        """Return the next complete frame, or None. Raises FrameError for an invalid length."""
        if self._large is not None:
            return self._large_frame(self._large)
        received = self._bytes
        buffered = len(received)
        if buffered < _LENGTH.size or self._to_drop:
            return None
        (length,) = _LENGTH.unpack_from(received)
        if not 0 < length <= self.max_frame_bytes:
            raise FrameError(
                f"a frame of {length} bytes was announced: expected 1 to"
                f" {self.max_frame_bytes} (is this framed Thrift?)"
            )
        size = _LENGTH.size + length
        if buffered < size:
            self.announced = size
            if length >= _LARGE_BYTES:
                self._large = BytesIO()
                self._large.write(memoryview(received)[_LENGTH.size :])
                self._bytes = b""
                self._count()
            return None
        self.announced = 0
        if buffered == size:  # the usual case: clients wait for their answers
            self._bytes, self.buffered = b"", 0
            return bytes(received[_LENGTH.size :])
        frame = bytes(memoryview(received)[_LENGTH.size : size])
        rest = self._bytes = self._grown()
        del rest[:size]
        self._count()
        return frame

    def pass_over(self) -> None:
        """Skip the incomplete frame, keeping only its first KEPT_BYTES; it must be larger.
        ``next_frame`` returns these bytes once the frame has arrived completely.

        Call it after ``next_frame`` returned None and ``announced`` is known.
        """
        if self._large is not None:
            self._bytes = bytearray(_LENGTH.size) + self._large.getvalue()
            self._large = None
        kept = self._bytes = self._grown()
        self._to_drop = self.announced - max(len(kept), KEPT_BYTES)
        del kept[KEPT_BYTES:]
        _LENGTH.pack_into(kept, 0, KEPT_BYTES - _LENGTH.size)
        self.announced = 0
        self._count()

    def _large_frame(self, large: BytesIO) -> bytes | None:
        """Return the large frame if it is complete, without copying it."""
        if large.tell() < self.announced - _LENGTH.size:
            return None
        self.announced = 0
        self._large = None
        self._count()
        return large.getvalue()

    def _kept(self, data: bytes) -> bytes:
        """Return the part of *data* to keep while a frame is skipped."""
        missing = KEPT_BYTES - len(self._bytes)
        head, rest = data[:missing], data[missing:]
        dropped = min(self._to_drop, len(rest))
        self._to_drop -= dropped
        return head + rest[dropped:]

    def _grown(self) -> bytearray:
        """Return the buffered bytes in a form that may grow and shrink."""
        return self._bytes if isinstance(self._bytes, bytearray) else bytearray(self._bytes)

    def clear(self) -> None:
        """Drop all bytes: the connection has ended."""
        self._bytes = b""
        self._large = None
        self.announced = self.buffered = 0

    def _count(self) -> None:
        self.buffered = len(self._bytes)
        if self._large is not None:
            self.buffered += _LENGTH.size + self._large.tell()


@dataclass(frozen=True, slots=True)
class _Codec:
    """The C codec and message heads of one protocol."""

    decode: Callable[[Any, Any, list[Any]], None]
    encode: Callable[[Any, list[Any]], bytes]
    plain: Callable[[TMemoryBuffer], Any]  # for TApplicationException, which has no C codec
    read_head: Callable[[bytes], tuple[int, int, int]]  # message type, start and end of the name
    type_at: int  # position of the message type in a head
    types: Mapping[int, bytes]  # that byte by message type
    after_name: int  # bytes of a head after the name
    empty: bytes  # the encoding of an empty binary field
    blob_length: Callable[[int], bytes]  # the prefix of a binary field, by its length
    count: Callable[..., int]  # spends a budget on a struct without creating objects


class Call:
    """One request with undecoded arguments.

    It is also the protocol object and the transport from which the C decoders read.
    """

    __slots__ = (
        "_frame",
        "_head_bytes",
        "codec",
        "cstringio_buf",
        "frame_bytes",
        "name",
        "one_way",
        "trans",
    )

    string_length_limit = 0x3FFFFFFF  # longer strings exceed the frame anyway
    container_length_limit = MAX_CONTAINER

    def __init__(self, frame: bytes) -> None:
        """Parse the head of a call, the frame without its length. Raises FrameError for anything
        else.
        """
        codec = _CODECS.get(frame[0])
        if codec is None:
            raise FrameError(
                f"a frame begins with 0x{frame[0]:02x}: expected 0x82 (compact) or 0x80 (binary)"
            )
        try:
            kind, start, end = codec.read_head(frame)
            self.name = frame[start:end].decode()
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise FrameError(f"a call's head cannot be read: {error.__class__.__name__}") from error
        if not 0 <= end - start <= MAX_NAME_BYTES:
            raise FrameError(
                f"a method's name of {end - start} bytes: 0 to {MAX_NAME_BYTES} are allowed"
            )
        head_bytes, frame_bytes = end + codec.after_name, len(frame)
        if head_bytes > frame_bytes:
            raise FrameError("a call's head is cut short")
        if kind not in _REQUESTS:
            raise FrameError(f"message type {kind} is not a call")
        self.one_way = kind == _ONE_WAY
        self.codec = codec
        #: Size of the frame, without its length.
        self.frame_bytes = frame_bytes
        self._frame, self._head_bytes = frame, head_bytes

    def decode(self, arguments: Any, specification: Any = None) -> Any:
        """Decode into the ``*_args`` struct *arguments*: the fields in *specification*, its own by
        default. Other fields are skipped without creating objects.

        Raises FrameError for invalid bytes.
        """
        if specification is None:
            specification = arguments.thrift_spec
        self.cstringio_buf = BytesIO(self._frame)
        self.cstringio_buf.seek(self._head_bytes)
        self.trans = self  # the transport, as the C decoders name it
        try:
            self.codec.decode(arguments, self, [arguments.__class__, specification])
        except Exception as error:
            # For invalid bytes the codecs raise various exceptions, from EOFError to OverflowError.
            raise FrameError(f"the arguments of {self.name} cannot be read: {error!r}") from error
        finally:
            del self.trans, self.cstringio_buf  # nothing refers to itself, or to the bytes twice
        return arguments

    def cstringio_refill(self, _partial: bytes, _missing: int) -> NoReturn:
        """Called by a decoder that reads beyond the end."""
        raise EOFError("it is cut short")

    def count(self, budget: Budget) -> None:
        """Spend *budget* on the arguments, without creating objects for them.

        Raises TooManyElements if it does not suffice, FrameError for invalid bytes.
        """
        try:
            self.codec.count(self._frame, self._head_bytes, budget, max_container=MAX_CONTAINER)
        except Uncountable as error:
            raise FrameError(f"the arguments of {self.name} cannot be read: {error}") from error

    def answer_frame(self, kind: int, payload: bytes) -> bytes:
        """Return the frame with this call's head, the message type *kind*, and *payload*."""
        return self.answer_head(kind, len(payload)) + payload

    def answer_head(self, kind: int, payload_bytes: int) -> bytes:
        """Return the part of a frame before its payload."""
        frame, codec, end = self._frame, self.codec, self._head_bytes
        at = codec.type_at
        length = _LENGTH.pack(end + payload_bytes)
        return length + frame[:at] + codec.types[kind] + frame[at + 1 : end]


@dataclass(frozen=True, slots=True)
class Spliced:
    """A result that ends with the list *entries*, structs that each end with an empty binary field.

    The bytes of *blobs*, possibly megabytes, are spliced into these fields without a codec copying
    them.
    """

    result: Any
    entries: Sequence[Any]
    blobs: Sequence[Sequence[bytes]]


def encode_answer(call: Call, result: Any) -> bytes:
    """Return the answer to *call* with the generated ``*_result`` struct *result*."""
    payload = call.codec.encode(result, [result.__class__, result.thrift_spec])
    return call.answer_head(_REPLY, len(payload)) + payload


def encode_spliced(call: Call, spliced: Spliced) -> list[bytes]:
    """Return the answer to *call* with *spliced*, in pieces."""
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
    head = call.answer_head(_REPLY, sum(map(len, pieces)))
    return [head + pieces[0], *pieces[1:]]


def encode_failure(call: Call, kind: int, message: str) -> bytes:
    """Return the answer to *call* with a TApplicationException of type *kind*."""
    buffer = TMemoryBuffer()
    TApplicationException(kind, message).write(call.codec.plain(buffer))
    return call.answer_frame(TMessageType.EXCEPTION, buffer.getvalue())


def _compact_head(frame: bytes) -> tuple[int, int, int]:
    version = frame[1]
    if version & 0x1F != _COMPACT_VERSION:
        raise FrameError(f"version {version & 0x1F} of the compact protocol: 1 is read")
    at = 3 if frame[2] < 0x80 else _varint(frame, 2)[1]  # after the sequence id
    length = frame[at]
    at += 1
    if length > 0x7F:
        length, at = _varint(frame, at - 1)
    return version >> 5, at, at + length


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    """Return the 32-bit varint at *at* and its end."""
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


_KINDS = (_CALL, _REPLY, TMessageType.EXCEPTION, _ONE_WAY)
_CODECS = {
    0x82: _Codec(
        decode=fastbinary.decode_compact,
        encode=fastbinary.encode_compact,
        plain=TCompactProtocol,
        read_head=_compact_head,
        type_at=1,
        types={kind: bytes([kind << 5 | _COMPACT_VERSION]) for kind in _KINDS},
        after_name=0,
        empty=b"\0",
        blob_length=_to_varint,
        count=count_compact,
    ),
    0x80: _Codec(
        decode=fastbinary.decode_binary,
        encode=fastbinary.encode_binary,
        plain=TBinaryProtocol,
        read_head=_binary_head,
        type_at=3,
        types={kind: bytes([kind]) for kind in _KINDS},
        after_name=4,  # the sequence id
        empty=bytes(4),
        blob_length=_LENGTH.pack,
        count=count_binary,
    ),
}
