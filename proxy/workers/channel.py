"""What supervisor and worker say to each other, over Unix sockets that keep packets whole.

To the worker go connections, each with the name of the door through which it came, and wishes that
it let some go; from the worker come reports. Neither side waits for the other: what does not fit is
tried elsewhere, or later.
"""

from __future__ import annotations

import array
import contextlib
import socket
from dataclasses import asdict, dataclass
from typing import Literal

import orjson

Door = Literal["thrift", "http"]
_LARGEST_PACKET = 4096


@dataclass(frozen=True, slots=True)
class Report:
    """All that a worker says of itself; the first one says that it is ready."""

    thrift: str
    http: str
    listening: bool
    open: int
    movable: int
    taken: int


class Gone(Exception):
    """The other side has ended."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends, which never block."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
    return ends


def hand_over(end: socket.socket, door: Door, connection: socket.socket) -> bool:
    """Give *connection* to the worker; False if it takes nothing now. Caller: the supervisor, which
    then closes its own copy.
    """
    try:
        socket.send_fds(end, [door.encode()], [connection.fileno()])
    except OSError:
        return False
    return True


def let_go(end: socket.socket, count: int) -> bool:
    """Have so many clients go elsewhere; False if it takes nothing now. Caller: the supervisor."""
    try:
        end.send(b"%d" % count)
    except OSError:
        return False
    return True


def take(end: socket.socket) -> tuple[Door, socket.socket] | int | Literal["lost"] | None:
    """The next connection, or how many clients to let go; None if there is nothing now, "lost" if
    there was a connection that could not be had. Raises Gone. Caller: the worker.
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
    if not fds:  # this process has as many files open as it may
        return "lost"
    connection = socket.socket(fileno=fds[0])
    connection.setblocking(False)
    return ("http" if data == b"http" else "thrift"), connection


def tell(end: socket.socket, report: Report) -> bool:
    """Send *report*; False if it does not fit now. Caller: the worker."""
    try:
        end.send(orjson.dumps(asdict(report)))
    except OSError:
        return False
    return True


def hear(end: socket.socket) -> Report | None:
    """The next report; None if there is none now. Raises Gone. Caller: the supervisor."""
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
    """Close it, if it is there."""
    if end is not None:
        with contextlib.suppress(OSError):
            end.close()
