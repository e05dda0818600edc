"""Framed compact Thrift for a client, without I/O: calls to bytes, bytes to answers.

A frame is a 4-byte big-endian length and that many bytes. The generated clients are not used: they
are bound to blocking transports.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeVar

from thrift.protocol.TCompactProtocol import TCompactProtocol, TCompactProtocolAccelerated
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from thin_client.errors import ProtocolError, ProxyFault

_LENGTH = struct.Struct(">i")

#: Longest answer taken: bodies of 4 MiB, one message more, and some room (the Thrift default).
MAX_FRAME_BYTES = 16_384_000
#: What is read at once, where it is not known how much comes.
_ROOM_BYTES = 65_536
#: Elements of one list or map of an answer; a hostile length would else cost memory.
MAX_CONTAINER = 1_000_000


@cache
def compiled_codec() -> bool:
    """Whether thrift's codec in C is there; the one in Python takes 20 times as long for structs.

    It is missing where the package came as a zip of Python files, as to the executors of Spark.
    There an answer is one field with megabytes, and the difference is small.
    """
    try:
        from thrift.protocol import fastbinary  # noqa: F401  # compiled, or not there at all
    except ImportError:
        return False
    return True


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
    buffer = TMemoryBuffer()
    protocol = _protocol(buffer)
    protocol.writeMessageBegin(method, TMessageType.CALL, sequence_id)
    arguments.write(protocol)
    payload = buffer.getvalue()
    return bytes(_LENGTH.pack(len(payload)) + payload)


def decode_reply(frame: bytes, result: R, *, method: str, sequence_id: int) -> R:
    """Fill the generated ``*_result`` struct *result* from the answer.

    Raises ProxyFault if the proxy says that it failed, ProtocolError if the bytes do not fit.
    """
    protocol = _protocol(TMemoryBuffer(frame))
    try:
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


def _protocol(buffer: TMemoryBuffer) -> Any:
    return (TCompactProtocolAccelerated if compiled_codec() else TCompactProtocol)(
        buffer, string_length_limit=MAX_FRAME_BYTES, container_length_limit=MAX_CONTAINER
    )
