"""Framed Thrift without I/O: bytes in, calls out; answers in, bytes out.

A frame is a 4-byte big-endian length and that many bytes. Its first byte tells the protocol: 0x82
compact, 0x80 binary; an answer comes in the protocol of its call. Source: the Thrift framed
transport, and ``thrift.md`` section "Transport".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

_COMPACT, _BINARY = 0x82, 0x80
_LENGTH = struct.Struct(">i")

#: Elements of one list or map of a request. A hostile length would else cost tens of milliseconds.
MAX_CONTAINER = 1_000_000


class FrameError(Exception):
    """These bytes are no call: the connection that they came on has to be closed."""


@dataclass(slots=True)
class FrameBuffer:
    """Cuts a byte stream into frames; memory stays below the limit and one read."""

    max_frame_bytes: int
    _bytes: bytearray = field(default_factory=bytearray)

    def receive_data(self, data: bytes) -> None:
        """Take what was read."""
        self._bytes += data

    def next_frame(self) -> bytes | None:
        """The next whole frame, or None. Raises FrameError for a length out of bounds."""
        if len(self._bytes) < 4:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        if not 0 < length <= self.max_frame_bytes:
            raise FrameError(
                f"a frame of {length} bytes was announced: it should have 1 to"
                f" {self.max_frame_bytes} (is this framed Thrift?)"
            )
        if len(self._bytes) < 4 + length:
            return None
        frame = bytes(self._bytes[4 : 4 + length])
        del self._bytes[: 4 + length]
        return frame

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return len(self._bytes)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, its arguments still undecoded."""

    name: str
    sequence_id: int
    one_way: bool
    compact: bool
    _protocol: Any

    def decode(self, arguments: Any) -> Any:
        """Fill the ``*_args`` struct *arguments*. Raises FrameError if the bytes do not fit."""
        try:
            arguments.read(self._protocol)
            self._protocol.readMessageEnd()
        except Exception as error:
            # The codecs raise anything from EOFError to OverflowError for bytes that do not fit.
            raise FrameError(f"the arguments of {self.name} cannot be read: {error!r}") from error
        return arguments


def decode_call(frame: bytes) -> Call:
    """The head of a call. Raises FrameError for anything else."""
    if frame[0] not in (_COMPACT, _BINARY):
        raise FrameError(
            f"a frame begins with 0x{frame[0]:02x}: it should be 0x82 (compact) or 0x80 (binary)"
        )
    compact = frame[0] == _COMPACT
    protocol = _protocol(TMemoryBuffer(frame), compact=compact, limit=len(frame))
    try:
        name, kind, sequence_id = protocol.readMessageBegin()
    except Exception as error:
        raise FrameError(f"a call's head cannot be read: {error!r}") from error
    if kind not in (TMessageType.CALL, TMessageType.ONEWAY):
        raise FrameError(f"message type {kind} is no call")
    return Call(name, sequence_id, kind == TMessageType.ONEWAY, compact, protocol)


def encode_answer(call: Call, result: Any) -> bytes:
    """The frame that answers *call* with the generated ``*_result`` struct *result*."""
    return _encode(call, TMessageType.REPLY, result)


def encode_failure(call: Call, kind: int, message: str) -> bytes:
    """The frame that answers *call* with a TApplicationException of that kind."""
    return _encode(call, TMessageType.EXCEPTION, TApplicationException(kind, message))


def _encode(call: Call, kind: int, struct_: Any) -> bytes:
    buffer = TMemoryBuffer()
    protocol = _protocol(buffer, compact=call.compact, limit=None)
    protocol.writeMessageBegin(call.name, kind, call.sequence_id)
    struct_.write(protocol)
    protocol.writeMessageEnd()
    payload = buffer.getvalue()
    return bytes(_LENGTH.pack(len(payload)) + payload)


def _protocol(buffer: TMemoryBuffer, *, compact: bool, limit: int | None) -> Any:
    factory = TCompactProtocolAccelerated if compact else TBinaryProtocolAccelerated
    # Without fallback=False a missing C codec would go unnoticed: 20 times slower, no depth limit.
    return factory(
        buffer,
        fallback=False,
        string_length_limit=limit,
        container_length_limit=MAX_CONTAINER,
    )
