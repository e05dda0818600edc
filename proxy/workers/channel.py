"""Messages between supervisor and worker, over Unix sockets that preserve packets.

The worker receives connections, each with the name of its listener, and requests to release some;
it sends reports. Neither side blocks: data that does not fit is sent elsewhere or later.
"""

from __future__ import annotations

import array
import contextlib
import signal
import socket
from dataclasses import asdict, dataclass
from typing import Literal

import orjson

Port = Literal["thrift", "http"]
_LARGEST_PACKET = 4096
#: Signal by which the supervisor has a worker drain, once it is ready. It is not SIGTERM, because a
#: service manager may send that to all processes: a second one stops a worker at once.
DRAIN = signal.SIGUSR1


@dataclass(frozen=True, slots=True)
class Report:
    """State of a worker; the first report means that it is ready."""

    thrift: str
    http: str
    listening: bool
    open: int
    movable: int
    taken: int
    file: str = ""
    """Digest of the settings file's content whose groups it serves; empty without a file."""


class Gone(Exception):
    """The other side has closed the channel."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends, non-blocking."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
    return ends


def pass_connection(end: socket.socket, port: Port, connection: socket.socket) -> bool:
    """Pass *connection* to the worker; return False if its channel is full.

    Called by the supervisor, which then closes its own copy.
    """
    try:
        socket.send_fds(end, [port.encode()], [connection.fileno()])
    except OSError:
        return False
    return True


def release(end: socket.socket, count: int) -> bool:
    """Ask the worker to release *count* clients; return False if its channel is full. Called by the
    supervisor.
    """
    try:
        end.send(b"%d" % count)
    except OSError:
        return False
    return True


def receive(end: socket.socket) -> tuple[Port, socket.socket] | int | Literal["lost"] | None:
    """Return the next connection, or the number of clients to release; None if there is nothing,
    "lost" if a connection could not be received.

    Raises Gone. Called by the worker.
    """
    fds = array.array("i")
    try:
        data, ancillary, _, _ = end.recvmsg(_LARGEST_PACKET, socket.CMSG_SPACE(fds.itemsize))
    except BlockingIOError:
        return None
    except OSError as error:
        raise Gone from error
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if data.isdigit():
        return int(data)
    if not data:
        raise Gone
    if not fds:  # the process has reached its limit of open files
        return "lost"
    connection = socket.socket(fileno=fds[0])
    connection.setblocking(False)
    return ("http" if data == b"http" else "thrift"), connection


def send_report(end: socket.socket, report: Report) -> bool:
    """Send *report*; return False if the channel is full. Called by the worker."""
    try:
        end.send(orjson.dumps(asdict(report)))
    except OSError:
        return False
    return True


def next_report(end: socket.socket) -> Report | None:
    """Return the next report, or None. Raises Gone. Called by the supervisor."""
    try:
        data = end.recv(_LARGEST_PACKET)
    except BlockingIOError:
        return None
    except OSError as error:
        raise Gone from error
    if not data:
        raise Gone
    return Report(**orjson.loads(data))


def close(end: socket.socket | None) -> None:
    """Close *end*, if it is not None."""
    if end is not None:
        with contextlib.suppress(OSError):
            end.close()
