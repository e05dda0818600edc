"""A blocking connection to a proxy."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any, TypeVar

from thin_client import chance, forks
from thin_client.calls import Call
from thin_client.errors import ClientError, ConnectionLost
from thin_client.servers import Destination
from thin_client.wire import FrameBuffer

T = TypeVar("T")
#: Minimum time-out of a socket: 0 would mean non-blocking.
_LEAST_S = 1e-6


class Connection:
    """One connection, one call at a time. Any ClientError except Refused closes it."""

    def __init__(self, destination: Destination, *, timeout_s: float) -> None:
        """Connect. Raises ConnectionLost if that fails or takes longer than *timeout_s*."""
        self.address = destination.address
        #: Held while the socket is used. Closed by another thread in that time, a TLS socket would
        #: go on unencrypted, and the number of the socket might already be another one's.
        self._in_use = threading.RLock()
        self._closed = False
        self._frames = FrameBuffer(self.address)
        self._sequence_id = chance.request_number()
        try:
            self._socket = _connected(destination, timeout_s)
        except (OSError, ValueError) as error:  # from name service, sockets and TLS
            raise ConnectionLost(f"no connection to {self.address}: {error}") from error
        forks.register(self)

    def call(self, call: Call[T], *, timeout_s: float) -> T:
        """Send *call* and return its answer, after at most *timeout_s*.

        Raises ConnectionLost, Refused, ProxyFault or ProtocolError.
        """
        deadline = time.monotonic() + timeout_s
        self.start(call, timeout_s=timeout_s)
        return self.finish(call, timeout_s=max(deadline - time.monotonic(), _LEAST_S))

    def start(self, call: Call[T], *, timeout_s: float) -> None:
        """Send *call*; the next method called must be ``finish``. Raises ConnectionLost."""
        self._sequence_id = (self._sequence_id + 1) & chance.MAX_REQUEST_NUMBER
        with self._in_words(call, timeout_s):
            self._socket.settimeout(timeout_s)
            self._socket.sendall(call.encode(self._sequence_id))

    def finish(self, call: Call[T], *, timeout_s: float) -> T:
        """Return the answer to the started *call*, after at most *timeout_s*; raise as ``call``."""
        deadline = time.monotonic() + timeout_s
        with self._in_words(call, timeout_s):
            while (frame := self._frames.next_frame()) is None:
                self._socket.settimeout(max(deadline - time.monotonic(), _LEAST_S))
                if not self._frames.receive_into(self._socket.recv_into):
                    text = f"{self.address} closed the connection during {call.method}"
                    raise self._lost(text, call)
            return call.decode(frame, sequence_id=self._sequence_id, sender=self.address)

    def close(self) -> None:
        """Close the connection; a pending call in another thread fails with ConnectionLost."""
        self._closed = True
        with contextlib.suppress(OSError):  # wakes that thread
            if isinstance(self._socket, ssl.SSLSocket):
                # Its own method would also end the encryption.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            else:
                self._socket.shutdown(socket.SHUT_RDWR)
        with self._in_use:
            self._socket.close()

    def forked(self) -> None:
        """Close the parent's socket without a shutdown, which would end the parent's connection."""
        self._socket.close()

    def _lost(self, text: str, call: Call[T]) -> ConnectionLost:
        """Return the error *text* of a connection that ended, unless this side closed it."""
        if self._closed:
            text = f"the connection to {self.address} was closed during {call.method}"
        return ConnectionLost(text, broke=True)

    @contextlib.contextmanager
    def _in_words(self, call: Call[T], timeout_s: float) -> Iterator[None]:
        """Convert socket errors to ClientErrors; close the connection where the error demands."""
        try:
            try:
                with self._in_use:
                    yield
            except TimeoutError as error:
                text = f"{self.address} did not answer {call.method} within {timeout_s:g} s"
                raise ConnectionLost(text) from error
            except OSError as error:
                text = f"the connection to {self.address} broke during {call.method}: {error}"
                raise self._lost(text, call) from error
        except BaseException as error:
            # After an interrupt, such as Ctrl-C, a late answer would be taken for another call's.
            if not (isinstance(error, ClientError) and error.leaves_connection):
                self.close()
            raise


def _connected(destination: Destination, timeout_s: float) -> socket.socket:
    """Connect a socket to the first of the name's addresses that accepts. Raises OSError."""
    host, port = destination.address
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure = OSError("the name has no address")
    for *_, address in destination.in_turn(found):
        try:
            return _connected_to(address, destination, timeout_s / len(found))
        except OSError as error:
            failure = error.with_traceback(None)
    try:
        raise failure
    finally:
        del failure  # it refers to this frame


def _connected_to(
    address: tuple[Any, ...], destination: Destination, timeout_s: float
) -> socket.socket:
    made = socket.create_connection(address[:2], timeout=timeout_s)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = destination.ssl_context
        if context is None:
            return made
        return context.wrap_socket(made, server_hostname=destination.server_name)
    except BaseException:
        made.close()
        raise
