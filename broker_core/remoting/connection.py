"""One remoting connection without its socket: bytes in, events out; commands in, bytes out. Pure.

The protocol is the same in both directions (a broker sends requests too), so the role only affects
error texts. The owner of the socket calls ``receive_data`` with incoming bytes and then
``next_event`` until it returns ``NEED_DATA``; the buffer then never exceeds one frame plus one
read. After a RemoteProtocolError the connection stays broken and keeps no bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from broker_core.errors import LocalProtocolError, RemoteProtocolError
from broker_core.remoting.command import RemotingCommand, decode, decode_header, header_bytes

#: RocketMQ's default of ``com.rocketmq.remoting.frameMaxLength``, for our brokers and clients too.
MAX_FRAME_BYTES = 16 * 1024 * 1024

_TLS_HANDSHAKE = 0x16
#: Shorter pieces are joined when they arrive: an object for each would cost many times its bytes.
_SHORT_PIECE_BYTES = 4096


class Role(Enum):
    """The end of a connection that this process is."""

    CLIENT = "client"
    SERVER = "server"


class _Need(Enum):
    DATA = "NEED_DATA"


#: Returned by ``next_event`` when it needs more bytes.
NEED_DATA: Final = _Need.DATA


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """The peer sent a request, perhaps one-way."""

    command: RemotingCommand


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The peer answered the request with the same opaque, which may have timed out already."""

    command: RemotingCommand


Event = RequestReceived | ResponseReceived


class RemotingConnection:
    """The state of one connection. See the module for its use."""

    __slots__ = (
        "_at",
        "_broken",
        "_data",
        "_max_frame_bytes",
        "_more",
        "_pristine",
        "_role",
        "buffered_bytes",
    )

    def __init__(self, role: Role, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """Start a connection. *max_frame_bytes* limits frames in both directions, without length
        word.
        """
        self._role = role
        self._max_frame_bytes = max_frame_bytes
        self._data: bytes | bytearray = b""  # the oldest bytes not consumed yet,
        self._at = 0  # from here on,
        self._more: list[bytes | bytearray] = []  # and the later ones
        #: Number of received bytes that were not consumed yet.
        self.buffered_bytes = 0
        self._pristine = True
        self._broken: str | None = None  # why: the error itself would refer to received bytes

    def __repr__(self) -> str:
        state = "broken" if self._broken is not None else f"buffered={self.buffered_bytes}"
        return f"<RemotingConnection {self._role.value} {state}>"

    def receive_data(self, data: bytes) -> None:
        """Add incoming bytes, of any length."""
        if self._broken is not None or not data:
            return
        if self.buffered_bytes:
            self._append(data)
        else:
            self._data, self._at = data, 0
        self.buffered_bytes += len(data)

    def _append(self, data: bytes) -> None:
        more = self._more
        if len(data) >= _SHORT_PIECE_BYTES:
            more.append(data)
        elif more and isinstance(more[-1], bytearray):
            more[-1] += data
        else:
            more.append(bytearray(data))

    def drop_bytes(self) -> None:
        """Drop received bytes: the connection has ended."""
        self._data, self._at, self.buffered_bytes = b"", 0, 0
        self._more.clear()

    def next_event(self) -> Event | Literal[_Need.DATA]:
        """Return the next complete command, or NEED_DATA. Raise RemoteProtocolError on invalid
        bytes.
        """
        command = self.next_command()
        if command is None:
            return NEED_DATA
        return ResponseReceived(command) if command.is_response else RequestReceived(command)

    def next_command(self) -> RemotingCommand | None:
        """Return the next complete command of either kind, or None. Faster than ``next_event``."""
        if self._broken is not None:
            raise RemoteProtocolError(self._broken)
        try:
            return self._next_command()
        except RemoteProtocolError as error:
            self._broken = str(error)
            self.drop_bytes()
            raise

    def send(self, command: RemotingCommand) -> bytes:
        """Return the bytes of *command*. Raise LocalProtocolError if its frame would be invalid."""
        frame = command.encode()
        if len(frame) - 4 > self._max_frame_bytes:
            raise LocalProtocolError(
                f"command {command.code} would make a frame of {len(frame) - 4} bytes:"
                f" the limit is {self._max_frame_bytes}"
            )
        return frame

    def _next_command(self) -> RemotingCommand | None:
        if self._pristine and self.buffered_bytes:
            self._refuse_tls(self._data[self._at])
        if self.buffered_bytes < 4:
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
        if self.buffered_bytes < 4 + length:
            if self.buffered_bytes >= 8:
                self._check_header(start, length)
            return None
        end = start + length
        if end > len(self._data):
            command = self._decode_spread(start, length)
        else:
            command = decode(self._data, start, end)
            self._keep(self._data, end)
        self.buffered_bytes -= 4 + length
        return command

    def _check_header(self, start: int, length: int) -> None:
        """Raise RemoteProtocolError for a header that is too large, before it is received."""
        if len(self._data) < start + 4:
            self._join()
            start = 4
        header_bytes(self._data[start : start + 4], length)

    def _decode_spread(self, start: int, length: int) -> RemotingCommand:
        """Return the frame of which only the beginning is in ``_data``.

        Joins the body from its pieces once, so that large ones are not copied twice.
        """
        left = len(self._data) - start
        size = header_bytes(self._data[start : start + 4], length) if left >= 4 else 0
        body_at = start + 4 + size
        if left < 4 or body_at > len(self._data):
            self._join()
            command = decode(self._data, 4, 4 + length)
            self._keep(self._data, 4 + length)
            return command
        command = decode_header(bytes(self._data[start + 4 : body_at]), self._data[start])
        parts: list[bytes | bytearray | memoryview] = [memoryview(self._data)[body_at:]]
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

    def _keep(self, data: bytes | bytearray, at: int) -> None:
        """Continue at position *at* of *data*, or with the next bytes."""
        if at == len(data):
            data, at = (self._more.pop(0) if self._more else b""), 0
        self._data, self._at = data, at

    def _refuse_tls(self, first_byte: int) -> None:
        self._pristine = False
        if first_byte == _TLS_HANDSHAKE:
            raise RemoteProtocolError(
                f"{self._peer()} requires TLS, which is not supported here: disable TLS there"
            )

    def _peer(self) -> str:
        return "the client" if self._role is Role.SERVER else "the server"
