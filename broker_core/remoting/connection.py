"""One remoting connection without its socket: bytes in, events out; commands in, bytes out. Pure.

The protocol is the same in both directions (a broker sends requests too), so the role only shapes
what an error says. Whoever owns the socket calls ``receive_data`` with what arrived and then
``next_event`` until it returns ``NEED_DATA``; done so, the buffer never exceeds one frame plus
one read. After a RemoteProtocolError the connection stays broken and keeps no bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from broker_core.errors import LocalProtocolError, RemoteProtocolError
from broker_core.remoting.command import RemotingCommand, decode

#: Default of RocketMQ's ``com.rocketmq.remoting.frameMaxLength``; our brokers and clients share it.
MAX_FRAME_BYTES = 16 * 1024 * 1024

_TLS_HANDSHAKE = 0x16


class Role(Enum):
    """Which end of the connection this is."""

    CLIENT = "client"
    SERVER = "server"


class _Need(Enum):
    DATA = "NEED_DATA"


#: What ``next_event`` returns when it needs more bytes.
NEED_DATA: Final = _Need.DATA


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """The other side asks for something, perhaps one-way."""

    command: RemotingCommand


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The other side answers the request with the same opaque; it may be one given up already."""

    command: RemotingCommand


Event = RequestReceived | ResponseReceived


class RemotingConnection:
    """The state of one connection. See the module for how to drive it."""

    __slots__ = ("_broken", "_buffer", "_max_frame_bytes", "_pristine", "_role")

    def __init__(self, role: Role, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """*max_frame_bytes* bounds a frame in either direction, its length word not counted."""
        self._role = role
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._pristine = True
        self._broken: RemoteProtocolError | None = None

    def __repr__(self) -> str:
        state = "broken" if self._broken else f"buffered={len(self._buffer)}"
        return f"<RemotingConnection {self._role.value} {state}>"

    def receive_data(self, data: bytes) -> None:
        """Take bytes that arrived, of any length."""
        if self._broken is None:
            self._buffer += data

    def next_event(self) -> Event | Literal[_Need.DATA]:
        """Return the next whole command, or NEED_DATA. Raises RemoteProtocolError on garbage."""
        if self._broken is not None:
            raise self._broken
        try:
            command = self._next_command()
        except RemoteProtocolError as error:
            self._broken = error
            self._buffer.clear()
            raise
        if command is None:
            return NEED_DATA
        return ResponseReceived(command) if command.is_response else RequestReceived(command)

    def send(self, command: RemotingCommand) -> bytes:
        """Return the bytes of *command*; raises LocalProtocolError if it makes no legal frame."""
        frame = command.encode()
        if len(frame) - 4 > self._max_frame_bytes:
            raise LocalProtocolError(
                f"command {command.code} would make a frame of {len(frame) - 4} bytes:"
                f" the limit is {self._max_frame_bytes}"
            )
        return frame

    def _next_command(self) -> RemotingCommand | None:
        buffer = self._buffer
        if self._pristine and buffer:
            self._refuse_tls(buffer[0])
        if len(buffer) < 4:
            return None
        length = int.from_bytes(buffer[:4], "big")
        if not 4 <= length <= self._max_frame_bytes:
            raise RemoteProtocolError(
                f"{self._peer()} announced a frame of {length} bytes (first bytes"
                f" {bytes(buffer[:4])!r}): legal are 4 to {self._max_frame_bytes}"
            )
        end = 4 + length
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view, view[4:end] as content:
            command = decode(content)
        del buffer[:end]  # moves the start only, no bytes
        return command

    def _refuse_tls(self, first_byte: int) -> None:
        self._pristine = False
        if first_byte == _TLS_HANDSHAKE:
            raise RemoteProtocolError(
                f"{self._peer()} wants TLS, which is not served here: switch TLS off there"
            )

    def _peer(self) -> str:
        return "the client" if self._role is Role.SERVER else "the server"
