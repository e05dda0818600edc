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
from broker_core.remoting.command import RemotingCommand, decode, decode_header, header_bytes

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

    __slots__ = (
        "_at",
        "_broken",
        "_data",
        "_held",
        "_max_frame_bytes",
        "_more",
        "_pristine",
        "_role",
    )

    def __init__(self, role: Role, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """*max_frame_bytes* bounds a frame in either direction, its length word not counted."""
        self._role = role
        self._max_frame_bytes = max_frame_bytes
        self._data = b""  # what arrived first of what was not taken yet,
        self._at = 0  # from here on,
        self._more: list[bytes] = []  # and what arrived after it
        self._held = 0  # bytes of all that
        self._pristine = True
        self._broken: RemoteProtocolError | None = None

    def __repr__(self) -> str:
        state = "broken" if self._broken else f"buffered={self._held}"
        return f"<RemotingConnection {self._role.value} {state}>"

    @property
    def buffered_bytes(self) -> int:
        """How much arrived that was not taken yet."""
        return self._held

    def receive_data(self, data: bytes) -> None:
        """Take bytes that arrived, of any length."""
        if self._broken is not None or not data:
            return
        if self._held:
            self._more.append(data)
        else:
            self._data, self._at = data, 0
        self._held += len(data)

    def next_event(self) -> Event | Literal[_Need.DATA]:
        """Return the next whole command, or NEED_DATA. Raises RemoteProtocolError on garbage."""
        command = self.next_command()
        if command is None:
            return NEED_DATA
        return ResponseReceived(command) if command.is_response else RequestReceived(command)

    def next_command(self) -> RemotingCommand | None:
        """As ``next_event``, for those who tell requests from responses themselves: faster."""
        if self._broken is not None:
            raise self._broken
        try:
            return self._next_command()
        except RemoteProtocolError as error:
            self._broken = error
            self._keep(b"", 0)
            self._more.clear()
            self._held = 0
            raise

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
        if self._pristine and self._held:
            self._refuse_tls(self._data[self._at])
        if self._held < 4:
            return None
        if len(self._data) - self._at < 4:
            self._join()
        start = self._at + 4
        word = self._data[self._at : start]
        length = int.from_bytes(word, "big")
        if not 4 <= length <= self._max_frame_bytes:
            raise RemoteProtocolError(
                f"{self._peer()} announced a frame of {length} bytes (first bytes {word!r}):"
                f" legal are 4 to {self._max_frame_bytes}"
            )
        if self._held < 4 + length:
            return None
        end = start + length
        if end > len(self._data):
            command = self._decode_spread(start, length)
        else:
            command = decode(self._data, start, end)
            self._keep(self._data, end)
        self._held -= 4 + length
        return command

    def _decode_spread(self, start: int, length: int) -> RemotingCommand:
        """The frame of which only the beginning stands in ``_data``. Its body is put together of
        its parts at once: large ones are not copied twice.
        """
        left = len(self._data) - start
        size = header_bytes(self._data[start : start + 4], length) if left >= 4 else 0
        body_at = start + 4 + size
        if left < 4 or body_at > len(self._data):
            self._join()
            command = decode(self._data, 4, 4 + length)
            self._keep(self._data, 4 + length)
            return command
        command = decode_header(self._data[start + 4 : body_at], self._data[start])
        parts: list[bytes | memoryview] = [memoryview(self._data)[body_at:]]
        missing = start + length - len(self._data)
        taken = 0
        while missing > len(self._more[taken]):
            parts.append(self._more[taken])
            missing -= len(self._more[taken])
            taken += 1
        parts.append(memoryview(self._more[taken])[:missing])
        command.complete(b"".join(parts))
        self._data = self._more[taken]
        del self._more[: taken + 1]
        self._keep(self._data, missing)
        return command

    def _join(self) -> None:
        self._data = b"".join((memoryview(self._data)[self._at :], *self._more))
        self._at = 0
        self._more.clear()

    def _keep(self, data: bytes, at: int) -> None:
        """Go on *at* there, or with what arrived next."""
        if at == len(data):
            data, at = (self._more.pop(0) if self._more else b""), 0
        self._data, self._at = data, at

    def _refuse_tls(self, first_byte: int) -> None:
        self._pristine = False
        if first_byte == _TLS_HANDSHAKE:
            raise RemoteProtocolError(
                f"{self._peer()} wants TLS, which is not served here: switch TLS off there"
            )

    def _peer(self) -> str:
        return "the client" if self._role is Role.SERVER else "the server"
