"""TCP keepalive and user timeout: let the system detect a peer that vanished without closing."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import Any

#: Unanswered probes before a connection ends. The first probe is sent after half of the time, the
#: others share the second half.
_PROBES = 3
#: Linux's upper limits for the first probe and for the interval between probes.
_LONGEST_S = 32_767


def find_dead_peer(connection: Any, *, within_s: float) -> None:
    """End *connection* (a socket or a transport's socket) with ETIMEDOUT once its peer has not
    answered for *within_s*.

    This covers unanswered keepalive probes and unacknowledged data, including data that the peer
    does not read. On a system that lacks an option, the system's default applies.
    """
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    between_s = max(1, round(within_s / (3 * _PROBES)))
    first_s = max(1, round(within_s) - _PROBES * between_s)
    with suppress(OSError):  # the connection may be closed already; some systems report that
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
    """Return whether a connection closed for *reason* because its peer stopped answering."""
    return isinstance(reason, OSError) and reason.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH)
