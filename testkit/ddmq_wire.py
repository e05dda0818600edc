"""DDMQ's consumer contract on the wire: only its own fields, as framed compact Thrift.

Written by hand from the tables of fields. It shares no generated code with the proxy, so a mistake
on either side shows. Fields that DDMQ does not have are recorded as foreign; an old client would
skip them.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Any, Self

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

#: Longest frame that DDMQ's Java client accepts.
MAX_FRAME_BYTES = 16_384_000
_LENGTH = struct.Struct(">i")

Fields = dict[int, tuple[str, Any]]
_TEXT, _BYTES = "text", "bytes"


@dataclass(frozen=True)
class ListOf:
    """A list of one kind."""

    kind: Any


@dataclass(frozen=True)
class MapOf:
    """A map from text to one kind."""

    kind: Any


_CONTEXT: Fields = {1: ("groupId", _TEXT), 2: ("topic", _TEXT), 3: ("qid", _TEXT)}
_RESULT: Fields = {
    1: ("context", _CONTEXT),
    3: ("successOffsets", ListOf(TType.I64)),
    4: ("failOffsets", ListOf(TType.I64)),
}
_RESULT[10] = ("nextResult", _RESULT)
_PULL: Fields = {
    1: ("groupId", _TEXT),
    2: ("topic", _TEXT),
    10: ("maxBatchSize", TType.I32),
    11: ("maxLingerTime", TType.I32),
    50: ("result", _RESULT),
    60: ("version", _TEXT),
}
_MESSAGE: Fields = {
    1: ("key", _TEXT),
    2: ("value", _BYTES),
    3: ("tag", _TEXT),
    4: ("offset", TType.I64),
    5: ("properties", MapOf(_TEXT)),
}
_RESPONSE: Fields = {1: ("context", _CONTEXT), 2: ("messages", ListOf(_MESSAGE))}
_EXCEPTION: Fields = {1: ("code", TType.I32), 2: ("message", _TEXT)}
_FETCH: Fields = {
    1: ("consumerId", _TEXT),
    2: ("groupId", _TEXT),
    3: ("cluster", _TEXT),
    4: ("fetchOffset", MapOf(MapOf(TType.I64))),
    10: ("maxBatchSize", TType.I32),
    11: ("maxLingerTime", TType.I32),
}
_OF_QID: Fields = {
    1: ("topic", _TEXT),
    2: ("qid", _TEXT),
    3: ("nextRequestOffset", TType.I64),
    10: ("messages", ListOf(_MESSAGE)),
}
_FETCHED: Fields = {1: ("code", TType.I32), 10: ("results", ListOf(_OF_QID))}

#: By method: the type of its one argument, and of its answer.
_METHODS: dict[str, tuple[Fields, Any]] = {
    "pull": (_PULL, _RESPONSE),
    "submit": (_RESULT, TType.BOOL),
    "fetch": (_FETCH, _FETCHED),
}


class Broken(Exception):
    """The server sent an answer that no DDMQ client understands."""


class PullException(Exception):
    """DDMQ's C++ client drops its acks after one, its Go client stalls for 5 s."""


@dataclass
class DdmqConnection:
    """One connection: one request at a time, its sequence id echoed."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    foreign: set[int] = field(default_factory=set)
    _sequence_id: int = 0

    @classmethod
    async def open(cls, server: str, *, foreign: set[int] | None = None) -> Self:
        """Connect to ``host:port``. Raises OSError."""
        host, _, port = server.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        return cls(reader, writer, set() if foreign is None else foreign)

    async def call(self, method: str, argument: dict[str, Any]) -> Any:
        """Call *method*. Raises PullException, Broken, OSError or EOFError."""
        self._sequence_id += 1
        asked, answered = _METHODS[method]
        buffer = TMemoryBuffer()
        out = TCompactProtocol(buffer)
        out.writeMessageBegin(method, TMessageType.CALL, self._sequence_id)
        _write(out, {1: ("it", asked)}, {"it": argument})
        payload = buffer.getvalue()
        self.writer.write(_LENGTH.pack(len(payload)) + payload)
        (length,) = _LENGTH.unpack(await self.reader.readexactly(4))
        if not 0 < length <= MAX_FRAME_BYTES:
            raise Broken(f"a frame of {length} bytes")
        source = TCompactProtocol(TMemoryBuffer(await self.reader.readexactly(length)))
        echoed, kind, sequence_id = source.readMessageBegin()
        if (echoed, kind, sequence_id) != (method, TMessageType.REPLY, self._sequence_id):
            raise Broken(f"{method} {self._sequence_id} answered by {echoed} {sequence_id}: {kind}")
        result = self._read(source, {0: ("success", answered), 1: ("error", _EXCEPTION)})
        if "error" in result:
            raise PullException(str(result["error"]))
        return result["success"]

    def close(self) -> None:
        """Disconnect at once."""
        self.writer.transport.abort()

    def _read(self, source: Any, fields: Fields) -> dict[str, Any]:
        values: dict[str, Any] = {}
        source.readStructBegin()
        while True:
            _, kind, number = source.readFieldBegin()
            if kind == TType.STOP:
                break
            if number in fields:
                name, wanted = fields[number]
                values[name] = self._read_value(source, wanted)
            else:
                self.foreign.add(number)
                source.skip(kind)
            source.readFieldEnd()
        source.readStructEnd()
        return values

    def _read_value(self, source: Any, kind: Any) -> Any:
        if isinstance(kind, dict):
            return self._read(source, kind)
        if isinstance(kind, ListOf):
            _, size = source.readListBegin()
            items = [self._read_value(source, kind.kind) for _ in range(size)]
            source.readListEnd()
            return items
        if isinstance(kind, MapOf):
            _, _, size = source.readMapBegin()
            pairs = {source.readString(): self._read_value(source, kind.kind) for _ in range(size)}
            source.readMapEnd()
            return pairs
        return {
            _TEXT: source.readString,
            _BYTES: source.readBinary,
            TType.I32: source.readI32,
            TType.I64: source.readI64,
            TType.BOOL: source.readBool,
        }[kind]()


def _write(out: Any, fields: Fields, values: dict[str, Any]) -> None:
    out.writeStructBegin("")
    for number, (name, kind) in sorted(fields.items()):
        if values.get(name) is not None:
            out.writeFieldBegin(name, _type_of(kind), number)
            _write_value(out, kind, values[name])
            out.writeFieldEnd()
    out.writeFieldStop()
    out.writeStructEnd()


def _write_value(out: Any, kind: Any, value: Any) -> None:
    if isinstance(kind, dict):
        _write(out, kind, value)
    elif isinstance(kind, ListOf):
        out.writeListBegin(_type_of(kind.kind), len(value))
        for each in value:
            _write_value(out, kind.kind, each)
        out.writeListEnd()
    elif isinstance(kind, MapOf):
        out.writeMapBegin(TType.STRING, _type_of(kind.kind), len(value))
        for name, each in value.items():
            out.writeString(name)
            _write_value(out, kind.kind, each)
        out.writeMapEnd()
    elif kind == _TEXT:
        out.writeString(value)
    elif kind == TType.I32:
        out.writeI32(value)
    else:
        out.writeI64(value)


def _type_of(kind: Any) -> int:
    if isinstance(kind, dict):
        return int(TType.STRUCT)
    if isinstance(kind, ListOf):
        return int(TType.LIST)
    if isinstance(kind, MapOf):
        return int(TType.MAP)
    return int(TType.STRING) if kind in (_TEXT, _BYTES) else int(kind)
