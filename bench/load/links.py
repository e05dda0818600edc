"""Many connections in one thread, with waits in microseconds.

Event loops wait in whole milliseconds, too coarse for latencies; this waits with ``select`` on one
descriptor that represents all.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator

_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 20


class Link:
    """One connection of frames, each preceded by its length in four bytes."""

    __slots__ = ("_address", "_last", "_received", "_unsent", "number", "socket")

    def __init__(self, address: str, number: int) -> None:
        """Connect to *address*, host:port; *number* identifies it. Raises OSError."""
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
        """Reconnect and repeat the last send; return whether all bytes were sent. Raises
        OSError.
        """
        self.socket.close()
        self._connect()
        return self.send(self._last)

    def send(self, frame: bytes) -> bool:
        """Send as many bytes as possible now; return whether all were sent."""
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
        """Continue a partial send; return whether all bytes were sent."""
        try:
            del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return False
        return not self._unsent

    def frames(self) -> Iterator[bytes]:
        """Return the received complete frames, including their lengths. Raises ConnectionError."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("the peer closed the connection")
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
        """Open another connection. Raises OSError."""
        link = Link(address, len(self._of))
        self._of[link.socket.fileno()] = link
        self._poll.register(link.socket, select.EPOLLIN)
        return link

    def again(self, link: Link) -> None:
        """Reconnect *link*, and repeat its last send. Raises OSError."""
        del self._of[link.socket.fileno()]  # closing it ends its registration
        whole = link.again()
        self._of[link.socket.fileno()] = link
        self._poll.register(link.socket, select.EPOLLIN | (0 if whole else select.EPOLLOUT))

    def send(self, link: Link, frame: bytes) -> None:
        """Send *frame*, now or when there is room."""
        if not link.send(frame):
            self._poll.modify(link.socket, select.EPOLLIN | select.EPOLLOUT)

    def close(self) -> None:
        """Close all connections."""
        for link in self._of.values():
            link.socket.close()
        self._of.clear()
        self._poll.close()

    def wait(self, timeout_s: float) -> list[Link]:
        """Return the connections with received data, after at most *timeout_s*."""
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
