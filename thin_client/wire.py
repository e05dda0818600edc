"""Framed compact Thrift for a client, without I/O: calls to bytes, bytes to answers.

A frame is a 4-byte big-endian length and that many bytes. The generated clients are not used: they
are bound to blocking transports.
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

#: Longest answer taken: 32 MiB, for the most that limits.max_answer_bytes of a proxy lets, and one
#: message more, inflated to 16 MiB.
MAX_FRAME_BYTES = 33_554_432
#: What is read at once, where it is not known how much comes.
_ROOM_BYTES = 65_536
#: How each message in the compact protocol begins.
_COMPACT, _VERSION = 0x82, 1
#: Elements of one list or map of an answer; a hostile length would else cost memory.
MAX_CONTAINER = 1_000_000


def compiled_codec() -> bool:
    """Whether thrift's codec in C is there; the one in Python takes 20 times as long for structs.

    It is missing where the package came as a zip of Python files, as to the executors of Spark.
    There an answer is one field with megabytes, and the difference is small.
    """
    return fastbinary is not None


class Struct(Protocol):
    """A generated struct."""

    def read(self, iprot: Any, /) -> Any:
        """Fill it from a protocol object."""

    def write(self, oprot: Any, /) -> None:
        """Write it to a protocol object."""


R = TypeVar("R", bound=Struct)


class FrameBuffer:
    """Cuts what was received into frames; holds at most one frame and what came after it."""

    def __init__(self) -> None:
        self._bytes = bytearray(_ROOM_BYTES)
        self._begin = self._end = 0  # of what was received and not taken

    def receive_data(self, data: bytes) -> None:
        """Take what was read."""
        self._make_room(len(data))
        with memoryview(self._bytes) as view:
            view[self._end : self._end + len(data)] = data
        self._end += len(data)

    def receive_into(self, read_into: Callable[[memoryview], int]) -> int:
        """Let *read_into* put what it reads here; returns how many bytes it read.

        Large frames come without a copy, and into memory that has been used before.
        """
        self._make_room(self._missing() or _ROOM_BYTES)
        with memoryview(self._bytes) as view, view[self._end :] as room:
            count = read_into(room)
        self._end += count
        return count

    def next_frame(self) -> bytes | None:
        """The next whole frame, or None. Raises ProtocolError for a length out of bounds."""
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
        """Bytes that the frame lacks; None while its length is unknown."""
        held = self._end - self._begin
        if held < 4:
            return None
        length: int = _LENGTH.unpack_from(self._bytes, self._begin)[0]
        if not 0 < length <= MAX_FRAME_BYTES:
            start = bytes(self._bytes[self._begin : self._begin + 4])
            raise ProtocolError(
                f"the answer begins with {start!r}, which is no length of a Thrift"
                " frame: is this the Thrift port of an orderlane proxy?"
            )
        return max(0, 4 + length - held)

    def _make_room(self, count: int) -> None:
        """For *count* bytes more."""
        if self._begin:
            held = self._bytes[self._begin : self._end]
            self._bytes[: len(held)] = held
            self._begin, self._end = 0, len(held)
        if (lacking := self._end + count - len(self._bytes)) > 0:
            self._bytes += bytes(lacking)


def encode_call(method: str, arguments: Struct, *, sequence_id: int) -> bytes:
    """The frame that calls *method* with a generated ``*_args`` struct."""
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


def decode_reply(frame: bytes, result: R, *, method: str, sequence_id: int) -> R:
    """Fill the generated ``*_result`` struct *result* from the answer.

    Raises ProxyFault if the proxy says that it failed, ProtocolError if the bytes do not fit.
    """
    try:
        begin = _message_begin(method, TMessageType.REPLY, sequence_id)
        if compiled_codec() and frame.startswith(begin):  # what nearly all are
            fastbinary.decode_compact(result, _Source(frame, len(begin)), _typed(result))
            return result
        protocol = _protocol(TMemoryBuffer(frame))
        name, kind, answered_id = protocol.readMessageBegin()
        fault = TApplicationException()
        (fault if kind == TMessageType.EXCEPTION else result).read(protocol)
    except Exception as error:
        # The codecs raise anything from EOFError to OverflowError for bytes that do not fit.
        raise ProtocolError(f"the answer to {method} cannot be read: {error!r}") from error
    if kind == TMessageType.EXCEPTION:
        internal = fault.type == TApplicationException.INTERNAL_ERROR
        raise ProxyFault(f"the proxy answered {method} with a fault: {fault}", retriable=internal)
    if kind != TMessageType.REPLY or (name, answered_id) != (method, sequence_id):
        raise ProtocolError(
            f"{method} number {sequence_id} was answered by message type {kind} for {name!r}"
            f" number {answered_id}"
        )
    return result


def _message_begin(method: str, kind: int, sequence_id: int) -> bytes:
    """What stands in front of a message's struct. Written here: thrift has it in Python alone,
    which takes ten times as long as the codec in C for a small struct.
    """
    start = bytearray((_COMPACT, _VERSION | kind << 5))
    while sequence_id > 0x7F:
        start.append(sequence_id & 0x7F | 0x80)
        sequence_id >>= 7
    name = method.encode()  # below 128 bytes, all of them
    start += bytes((sequence_id, len(name)))
    return bytes(start + name)


class _Source:
    """What the codec in C asks a protocol object and its transport for."""

    __slots__ = ("cstringio_buf",)

    container_length_limit = MAX_CONTAINER

    def __init__(self, frame: bytes, begin: int) -> None:
        self.cstringio_buf = BytesIO(frame)
        self.cstringio_buf.seek(begin)

    @property
    def string_length_limit(self) -> int:
        return MAX_FRAME_BYTES

    @property
    def trans(self) -> Self:
        return self

    def cstringio_refill(self, partial: bytes, length: int) -> NoReturn:
        raise EOFError("it ends within a field")


def _typed(struct: Any) -> list[Any]:
    return [type(struct), struct.thrift_spec]


def _protocol(buffer: TMemoryBuffer) -> Any:
    return (TCompactProtocolAccelerated if compiled_codec() else TCompactProtocol)(
        buffer, string_length_limit=MAX_FRAME_BYTES, container_length_limit=MAX_CONTAINER
    )
