"""One remoting command and its frame, in both header forms. Pure.

A frame is ``int32 length | int32 serialize type << 24 | header length | header | body``, all
big-endian; *length* counts the bytes after it. Source of the layout: ``RemotingCommand`` and
``RocketMQSerializable`` of Apache RocketMQ 4.9 and 5.3, the same in both.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

import orjson

from broker_core.errors import LocalProtocolError, RemoteProtocolError
from broker_core.remoting.header_fields import read_int32
from broker_core.remoting.json_budget import exceeds
from broker_core.remoting.json_fields import short

#: RocketMQ 4.9.8: new enough for strict JSON from nameservers, too old to announce 5.x features.
VERSION = 409

#: Indexes are the numbers of languages in the binary header. Unknown ones read as OTHER.
LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER"),
    *("HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"),
)
_LANGUAGE_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)}
_OTHER = _LANGUAGE_NUMBERS["OTHER"]

#: Largest header: five times the properties of a message, each character escaped.
MAX_HEADER_BYTES = 1024 * 1024
#: Most fields of a header; requests have up to thirty.
MAX_HEADER_FIELDS = 1024

_OVERHEAD_BYTES = 1024  # of a command, besides its texts and body

#: Received bytes, as a whole or a view of a part.
Bytes: TypeAlias = bytes | bytearray | memoryview
_RESPONSE = 1
_ONEWAY = 2

_FRAME_START = struct.Struct(">II")
_BINARY_START = struct.Struct(">hbhii")  # code, language, version, opaque, flag
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_LIMIT = 1 << 31


class SerializeType(IntEnum):
    """Encoding of a frame's header. An answer uses that of its request."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class RemotingCommand:
    """A request or a response.

    ``ext`` contains the header fields as strings, named as in Java (see ``headers.py``); ``opaque``
    relates a response to its request within one connection; the sender sets it.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    version: int = VERSION
    language: str = "PYTHON"
    serialize: SerializeType = SerializeType.JSON
    header_bytes: int = field(default=0, compare=False)  # of a received command

    @property
    def weight(self) -> int:
        """Approximate memory of this received command, in bytes."""
        return len(self.body) + self.header_bytes + _OVERHEAD_BYTES

    @property
    def is_response(self) -> bool:
        """True for an answer, False for a request."""
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True for a request that gets no answer."""
        return bool(self.flag & _ONEWAY)

    def oneway(self) -> RemotingCommand:
        """Mark this request as one-way, and return it."""
        self.flag |= _ONEWAY
        return self

    def response(
        self,
        code: int = 0,
        remark: str | None = None,
        *,
        ext: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
    ) -> RemotingCommand:
        """Return the answer to this request, with its opaque and header encoding."""
        return RemotingCommand(
            code=code,
            opaque=self.opaque,
            flag=_RESPONSE,
            remark=remark,
            ext={} if ext is None else ext,
            body=body,
            serialize=self.serialize,
        )

    def number(self, opaque: int) -> None:
        """Set the number that relates the answer to this request."""
        self.opaque = opaque

    def sign(self, signed: dict[str, str]) -> None:
        """Replace the fields by *signed*, which adds a signature to them."""
        self.ext = signed

    def complete(self, body: bytes) -> None:
        """Add the body to a header that was read alone."""
        self.body = body

    def encode(self) -> bytes:
        """Return the whole frame. Raise LocalProtocolError if the header cannot be encoded."""
        try:
            if self.serialize is SerializeType.JSON:
                header = _encode_json(self)
            else:
                header = _encode_binary(self)
        except (struct.error, TypeError, UnicodeEncodeError) as error:
            raise LocalProtocolError(f"command {self.code} cannot be encoded: {error}") from error
        if len(header) > 0xFFFFFF:
            raise LocalProtocolError(
                f"command {self.code} has a header of {len(header)} bytes: at most 16777215 fit"
            )
        start = _FRAME_START.pack(
            4 + len(header) + len(self.body), self.serialize << 24 | len(header)
        )
        return b"".join((start, header, self.body))


def decode(
    data: bytes | bytearray | memoryview, start: int = 0, end: int | None = None
) -> RemotingCommand:
    """Read the frame from *start* to *end*, without its length word. The body is copied.

    Raises RemoteProtocolError if the bytes are not a command.
    """
    end = len(data) if end is None else end
    header_at, header_end = (
        start + 4,
        start + 4 + header_bytes(data[start : start + 4], end - start),
    )
    header, body = bytes(data[header_at:header_end]), bytes(data[header_end:end])
    return decode_header(header, data[start], body)


def header_bytes(word: Bytes, frame_bytes: int) -> int:
    """Return the header's length from its *word*, in a frame of *frame_bytes* after the length
    word.

    Raises RemoteProtocolError if the frame is too short for it, or it exceeds MAX_HEADER_BYTES.
    """
    if frame_bytes < 4:
        raise RemoteProtocolError(f"a frame of {frame_bytes} bytes has no room for a header word")
    size = int.from_bytes(word[1:], "big")
    if 4 + size > frame_bytes:
        raise RemoteProtocolError(
            f"a header of {size} bytes does not fit in a frame of {frame_bytes}"
        )
    if size > MAX_HEADER_BYTES:
        raise RemoteProtocolError(f"a header of {size} bytes: at most {MAX_HEADER_BYTES} are read")
    return size


def decode_header(header: bytes, serialize: int, body: bytes = b"") -> RemotingCommand:
    """Return the command with this header and *body*. Raise as ``decode``."""
    if serialize == SerializeType.JSON:
        command = _decode_json(header, body)
    elif serialize == SerializeType.ROCKETMQ:
        command = _decode_binary(header, body)
    else:
        raise RemoteProtocolError(f"serialize type {serialize} is neither 0 (JSON) nor 1 (binary)")
    command.header_bytes = len(header)
    return command


# -- JSON header -----------------------------------------------------------------------------


def _encode_json(command: RemotingCommand) -> bytes:
    fields = {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        # Always present: Java clients and brokers dereference it unchecked.
        "extFields": command.ext,
        "serializeTypeCurrentRPC": "JSON",
    }
    if command.remark is not None:
        fields["remark"] = command.remark
    return orjson.dumps(fields)


def _decode_json(header: bytes, body: bytes) -> RemotingCommand:
    if len(header) > MAX_HEADER_FIELDS and exceeds(header, MAX_HEADER_FIELDS):
        raise RemoteProtocolError(
            f"the frame's header is not JSON with at most {MAX_HEADER_FIELDS} values"
        )
    try:
        fields = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(f"the frame's header is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise RemoteProtocolError(f"the frame's header is not a JSON object: {header[:80]!r}")
    of = fields.get
    code, opaque, flag, version = of("code"), of("opaque"), of("flag"), of("version")
    if not (
        type(code) is type(opaque) is type(flag) is type(version) is int
        and min(code, opaque, flag, version) >= -_INT32_LIMIT
        and max(code, opaque, flag, version) < _INT32_LIMIT
    ):  # rare
        code, opaque, flag, version = (
            _int32(fields, name) for name in ("code", "opaque", "flag", "version")
        )
    remark, language = of("remark"), of("language", "JAVA")
    return RemotingCommand(
        code,
        opaque,
        flag,
        None if remark is None else _text("remark", remark),
        _ext(of("extFields")),
        body,
        version,
        _language(language),
    )


def _language(value: object) -> str:
    """Return a language given by name or number; OTHER if unknown."""
    if type(value) is str:
        if value in LANGUAGES:
            return value
        value = int(value) if value.isascii() and value.isdecimal() and len(value) < 4 else -1
    if type(value) is int and 0 <= value < len(LANGUAGES):
        return LANGUAGES[value]
    return "OTHER"


def _int32(fields: dict[str, Any], name: str) -> int:
    # Java omits a field with its default, 0.
    value = fields.get(name)
    if value is None:
        return 0
    if type(value) is str:
        with suppress(ValueError):
            return read_int32(value)
    if type(value) is int and -_INT32_LIMIT <= value < _INT32_LIMIT:
        return value
    raise RemoteProtocolError(f"header field {name} is {short(value)}: expected a 32-bit integer")


def _ext(fields: object) -> dict[str, str]:
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise RemoteProtocolError(f"extFields is {short(fields)}: expected an object of strings")
    try:
        "".join(fields.values())  # the fastest check that all are strings
        return fields
    except TypeError:
        pass
    return {name: _text(name, value) for name, value in fields.items() if value is not None}


def _text(name: str, value: object) -> str:
    # Java's parser accepts any JSON value in place of a string, as its text; so does this one.
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise RemoteProtocolError(
            f"header field {name[:80]!r} is {short(value)}: expected a string ({error})"
        ) from error


# -- binary header ---------------------------------------------------------------------------


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = b"" if command.remark is None else command.remark.encode()
    ext = _encode_ext(command.ext)
    language = _LANGUAGE_NUMBERS.get(command.language, _OTHER)
    start = _BINARY_START.pack(
        command.code, language, command.version, command.opaque, command.flag
    )
    return b"".join((start, _INT32.pack(len(remark)), remark, _INT32.pack(len(ext)), ext))


def _encode_ext(ext: Mapping[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, value in ext.items():
        key, text = name.encode(), value.encode()
        parts += (_INT16.pack(len(key)), key, _INT32.pack(len(text)), text)
    return b"".join(parts)


def _decode_binary(header: bytes, body: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag = _BINARY_START.unpack_from(header)
        remark, position = _take(header, _BINARY_START.size, _INT32)
        ext, end = _take(header, position, _INT32)
        if end != len(header):
            raise RemoteProtocolError(f"the binary header has {len(header) - end} bytes too many")
        return RemotingCommand(
            code=code,
            opaque=opaque,
            flag=flag,
            remark=remark.decode() if remark else None,
            ext=_decode_ext(ext),
            body=body,
            version=version,
            language=LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER",
            serialize=SerializeType.ROCKETMQ,
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the frame's binary header is broken: {error}") from error


def _decode_ext(data: bytes) -> dict[str, str]:
    ext: dict[str, str] = {}
    position = fields = 0
    while position < len(data):
        fields += 1
        if fields > MAX_HEADER_FIELDS:
            raise RemoteProtocolError(
                f"the binary header has too many fields: at most {MAX_HEADER_FIELDS} are read"
            )
        key, position = _take(data, position, _INT16)
        value, position = _take(data, position, _INT32)
        ext[key.decode()] = value.decode()
    return ext


def _take(data: bytes, position: int, length_format: struct.Struct) -> tuple[bytes, int]:
    """Read a length and that many bytes at *position*; return them and their end."""
    (length,) = length_format.unpack_from(data, position)
    start = position + length_format.size
    if not 0 <= length <= len(data) - start:
        raise RemoteProtocolError(
            f"the binary header announces {length} bytes, but {len(data) - start} are left"
        )
    return data[start : start + length], start + length
