"""Framed compact Thrift for a client: encoding of calls, decoding of answers. No I/O.

A frame is a 4-byte big-endian length followed by that number of bytes. The generated clients are
not used because they need blocking transports.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any, NoReturn, Protocol, Self, TypeVar

from thrift.protocol.TCompactProtocol import TCompactProtocol, TCompactProtocolAccelerated
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from thin_client.errors import ProtocolError, ProxyFault

try:
    from thrift.protocol import fastbinary
except ImportError:  # see compiled_codec
    fastbinary = None

_LENGTH = struct.Struct(">i")

#: Maximum size of an answer, 32 MiB: the maximum of a proxy's limits.max_answer_bytes, plus one
#: message inflated to 16 MiB.
MAX_FRAME_BYTES = 33_554_432
#: Size of a read while the length of the answer is unknown.
_ROOM_BYTES = 65_536
#: First byte and version of a message in the compact protocol.
_COMPACT, _VERSION = 0x82, 1
#: Maximum elements of a list or map in an answer, so that a hostile length cannot use up memory.
MAX_CONTAINER = 1_000_000


def compiled_codec() -> bool:
    """Return whether thrift's C codec is installed; the Python codec takes 20 times as long.

    It is missing if the package is a zip of Python files, as on Spark's executors. Their answers
    have one field of megabytes, for which the difference is small.
    """
    return fastbinary is not None


class Struct(Protocol):
    """A generated struct."""

    def read(self, iprot: Any, /) -> Any:
        """Read the fields from a protocol object."""

    def write(self, oprot: Any, /) -> None:
        """Write the fields to a protocol object."""


R = TypeVar("R", bound=Struct)


class FrameBuffer:
    """Splits received bytes into frames; holds at most one frame and the bytes after it."""

    def __init__(self, sender: object = "the server") -> None:
        """*sender*: the server's address, for errors."""
        self._sender = sender
        self._bytes = bytearray(_ROOM_BYTES)
        self._begin = self._end = 0  # bounds of the unread bytes

    def receive_data(self, data: bytes) -> None:
        """Add received bytes."""
        self._make_room(len(data))
        with memoryview(self._bytes) as view:
            view[self._end : self._end + len(data)] = data
        self._end += len(data)

    def receive_frame(self, data: bytes) -> bytes | None:
        """Add received bytes; return the next complete frame, or None. Raises as ``next_frame``.

        In the usual case, one whole frame, it is copied only once.
        """
        if self._begin == self._end and _is_frame(data):
            return data[_LENGTH.size :]
        self.receive_data(data)
        return self.next_frame()

    def receive_into(self, read_into: Callable[[memoryview], int]) -> int:
        """Let *read_into* write into the buffer; return the number of bytes read.

        This avoids copies of large frames and reuses memory.
        """
        self._make_room(self._missing() or _ROOM_BYTES)
        with memoryview(self._bytes) as view, view[self._end :] as room:
            count = read_into(room)
        self._end += count
        return count

    def clear(self) -> None:
        """Drop all bytes: the connection has ended."""
        self._bytes = bytearray()
        self._begin = self._end = 0

    def next_frame(self) -> bytes | None:
        """Return the next complete frame, or None. Raises ProtocolError for an invalid length."""
        missing = self._missing()
        if missing is None or missing > 0:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes, self._begin)
        begin = self._begin + 4
        with memoryview(self._bytes) as view:
            frame = bytes(view[begin : begin + length])
        self._begin = begin + length
        return frame

    def _missing(self) -> int | None:
        """Return the number of missing bytes of the frame; None while its length is unknown."""
        held = self._end - self._begin
        if held < 4:
            return None
        length: int = _LENGTH.unpack_from(self._bytes, self._begin)[0]
        if not 0 < length <= MAX_FRAME_BYTES:
            start = bytes(self._bytes[self._begin : self._begin + 4])
            raise ProtocolError(
                f"the answer of {self._sender} begins with {start!r}, which is not the length of a"
                " Thrift frame: connect to the Thrift port of an orderlane proxy"
            )
        return max(0, 4 + length - held)

    def _make_room(self, count: int) -> None:
        """Make room for *count* more bytes."""
        if self._begin:
            held = self._bytes[self._begin : self._end]
            self._bytes[: len(held)] = held
            self._begin, self._end = 0, len(held)
        if (lacking := self._end + count - len(self._bytes)) > 0:
            self._bytes += bytes(lacking)


def _is_frame(data: bytes) -> bool:
    size = _LENGTH.size
    return len(data) > size and _LENGTH.unpack_from(data)[0] == len(data) - size


def encode_call(method: str, arguments: Struct, *, sequence_id: int) -> bytes:
    """Return the frame that calls *method* with a generated ``*_args`` struct."""
    if compiled_codec():
        fields: bytes = fastbinary.encode_compact(arguments, _typed(arguments))
        payload = _message_begin(method, TMessageType.CALL, sequence_id) + fields
    else:
        buffer = TMemoryBuffer()
        protocol = _protocol(buffer)
        protocol.writeMessageBegin(method, TMessageType.CALL, sequence_id)
        arguments.write(protocol)
        payload = buffer.getvalue()
    return _LENGTH.pack(len(payload)) + payload


def decode_reply(
    frame: bytes, result: R, *, method: str, sequence_id: int, sender: object = "the proxy"
) -> R:
    """Fill the generated ``*_result`` struct *result* from the answer.

    Raises ProxyFault if the proxy reports a failure, ProtocolError for an invalid answer; both name
    the *sender*.
    """
    try:
        begin = _message_begin(method, TMessageType.REPLY, sequence_id)
        if compiled_codec() and frame.startswith(begin):  # the usual case
            fastbinary.decode_compact(result, _Source(frame, len(begin)), _typed(result))
            return result
        protocol = _protocol(TMemoryBuffer(frame))
        name, kind, answered_id = protocol.readMessageBegin()
        fault = TApplicationException()
        (fault if kind == TMessageType.EXCEPTION else result).read(protocol)
    except Exception as error:
        # The codecs raise anything from EOFError to OverflowError for invalid bytes.
        raise ProtocolError(
            f"the answer of {sender} to {method} cannot be decoded: {error!r}"
        ) from error
    if kind == TMessageType.EXCEPTION:
        internal = fault.type == TApplicationException.INTERNAL_ERROR
        raise ProxyFault(
            f"{sender} answered {method} with a fault: {fault}",
            retriable=internal,
            unknown_method=fault.type == TApplicationException.UNKNOWN_METHOD,
        )
    if kind != TMessageType.REPLY or (name, answered_id) != (method, sequence_id):
        raise ProtocolError(
            f"{sender} answered {method} number {sequence_id} with message type {kind} for {name!r}"
            f" number {answered_id}: expected a reply to this call"
        )
    return result


def _message_begin(method: str, kind: int, sequence_id: int) -> bytes:
    """Return the header before a message's struct.

    thrift implements it only in Python, which takes ten times as long as a small struct in C.
    """
    start = bytearray((_COMPACT, _VERSION | kind << 5))
    while sequence_id > 0x7F:
        start.append(sequence_id & 0x7F | 0x80)
        sequence_id >>= 7
    name = method.encode()  # all names are below 128 bytes
    start += bytes((sequence_id, len(name)))
    return bytes(start + name)


class _Source:
    """The part of a protocol object and its transport that the C codec uses."""

    __slots__ = ("cstringio_buf",)

    container_length_limit = MAX_CONTAINER
    string_length_limit = MAX_FRAME_BYTES

    def __init__(self, frame: bytes, begin: int) -> None:
        self.cstringio_buf = BytesIO(frame)
        self.cstringio_buf.seek(begin)

    @property
    def trans(self) -> Self:
        return self

    def cstringio_refill(self, partial: bytes, length: int) -> NoReturn:
        raise EOFError("the answer ends within a field")


def _typed(struct: Any) -> list[Any]:
    return [type(struct), struct.thrift_spec]


def _protocol(buffer: TMemoryBuffer) -> Any:
    return (TCompactProtocolAccelerated if compiled_codec() else TCompactProtocol)(
        buffer, string_length_limit=MAX_FRAME_BYTES, container_length_limit=MAX_CONTAINER
    )
