"""Connections whose other end is gone without a word: the system finds them, if it is told to."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import Any

#: Probes after which a silent peer is given up; the first comes when as much time has passed as
#: they take together, twice over.
_PROBES = 3
#: The longest that Linux takes for the first probe, and between two.
_LONGEST_S = 32_767


def find_dead_peer(connection: Any, *, within_s: float) -> None:
    """Have the system end *connection* (a socket, or what a transport gives as one) with ETIMEDOUT
    once its peer has answered nothing for *within_s*: neither probes nor bytes, nor, for bytes that
    wait to be sent, by reading. Where a system lacks an option, its own times hold.
    """
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    between_s = max(1, round(within_s / (3 * _PROBES)))
    first_s = max(1, round(within_s) - _PROBES * between_s)
    with suppress(OSError):  # it has gone already, and some systems mind
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", min(first_s, _LONGEST_S)),
            ("TCP_KEEPINTVL", between_s),
            ("TCP_KEEPCNT", _PROBES),
            ("TCP_USER_TIMEOUT", round(within_s * 1000)),
        ):
            if (number := getattr(socket, option, None)) is not None:
                connection.setsockopt(socket.IPPROTO_TCP, number, value)


def is_dead_peer(reason: BaseException | None) -> bool:
    """Whether a connection ended for *reason* because its peer answered nothing any more."""
    return isinstance(reason, OSError) and reason.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH)
