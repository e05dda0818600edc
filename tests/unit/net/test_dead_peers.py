"""Keepalive on sockets, and the recognition of vanished peers."""

from __future__ import annotations

import errno
import socket

import pytest

from proxy.net.dead_peers import find_dead_peer, is_dead_peer


@pytest.mark.parametrize("within_s", [1.0, 4.4, 90.0, 86_400.0])
def test_any_time_that_settings_take_is_one_that_the_system_takes(within_s: float) -> None:
    with socket.socket() as connection:
        find_dead_peer(connection, within_s=within_s)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert found == round(within_s * 1000)


def test_other_sockets_and_closed_ones_are_left_alone() -> None:
    one, other = socket.socketpair()
    with one, other:
        find_dead_peer(one, within_s=5)
    find_dead_peer(None, within_s=5)
    gone = socket.socket()
    gone.close()
    find_dead_peer(gone, within_s=5)


def test_a_reset_is_no_silence() -> None:
    assert is_dead_peer(TimeoutError(errno.ETIMEDOUT, "timed out"))
    assert is_dead_peer(OSError(errno.EHOSTUNREACH, "no route"))
    assert not is_dead_peer(ConnectionResetError(errno.ECONNRESET, "reset"))
    assert not is_dead_peer(None)
