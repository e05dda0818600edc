"""Many connections in one thread, with waits as short as microseconds.

Event loops wait for whole milliseconds, which is what a latency is here; so this waits with
``select``, for the one descriptor that stands for all.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator

_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 20


class Link:
    """One connection that speaks in frames, each with its length in four bytes before it."""

    __slots__ = ("_address", "_last", "_received", "_unsent", "number", "socket")

    def __init__(self, address: str, number: int) -> None:
        """Connect to *address*, host:port; *number* names it. Raises OSError."""
        self._address = address
        self.number = number
        self._last = b""
        self._connect()

    def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._received = bytearray()
        self._unsent = bytearray()

    def again(self) -> bool:
        """Connect anew and send again what was sent last; whether that is all. Raises OSError."""
        self.socket.close()
        self._connect()
        return self.send(self._last)

    def send(self, frame: bytes) -> bool:
        """Send what goes at once; whether that is all."""
        self._last = frame
        if self._unsent:
            self._unsent += frame
            return False
        try:
            count = self.socket.send(frame)
        except BlockingIOError:
            count = 0
        self._unsent += frame[count:]
        return not self._unsent

    def send_rest(self) -> bool:
        """Go on with what did not go at once; whether that is all."""
        try:
            del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return False
        return not self._unsent

    def frames(self) -> Iterator[bytes]:
        """What has arrived, as whole frames with their lengths. Raises ConnectionError."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("the connection was closed by the other side")
        received = self._received
        received += data
        begin = 0
        while len(received) - begin >= 4:
            end = begin + 4 + _LENGTH.unpack_from(received, begin)[0]
            if end > len(received):
                break
            yield bytes(received[begin:end])
            begin = end
        del received[:begin]


class Links:
    """All connections of a program."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._of: dict[int, Link] = {}

    def connect(self, address: str) -> Link:
        """Another connection. Raises OSError."""
        link = Link(address, len(self._of))
        self._of[link.socket.fileno()] = link
        self._poll.register(link.socket, select.EPOLLIN)
        return link

    def again(self, link: Link) -> None:
        """Connect *link* anew, and send again what went with it last. Raises OSError."""
        del self._of[link.socket.fileno()]  # closing it ends its registration
        whole = link.again()
        self._of[link.socket.fileno()] = link
        self._poll.register(link.socket, select.EPOLLIN | (0 if whole else select.EPOLLOUT))

    def send(self, link: Link, frame: bytes) -> None:
        """Send *frame*, now or when there is room."""
        if not link.send(frame):
            self._poll.modify(link.socket, select.EPOLLIN | select.EPOLLOUT)

    def close(self) -> None:
        """End all of them."""
        for link in self._of.values():
            link.socket.close()
        self._of.clear()
        self._poll.close()

    def wait(self, timeout_s: float) -> list[Link]:
        """Those for which something has arrived, after *timeout_s* at most."""
        if timeout_s > 0:
            select.select((self._poll.fileno(),), (), (), timeout_s)
        ready = []
        for descriptor, events in self._poll.poll(0):
            link = self._of[descriptor]
            if events & select.EPOLLOUT and link.send_rest():
                self._poll.modify(link.socket, select.EPOLLIN)
            if events & ~select.EPOLLOUT:
                ready.append(link)
        return ready
