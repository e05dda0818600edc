"""A child process closes an inherited socket, and no other file."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from thin_client.forks import release_socket

NULL = Path(os.devnull).stat()


@pytest.mark.sockets
async def test_the_other_end_of_a_socket_sees_its_end_and_the_number_stays_taken() -> None:
    near, far = socket.socketpair()
    far.settimeout(10)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=near)
    number = near.fileno()

    release_socket(transport.get_extra_info("socket"))
    assert far.recv(1) == b""
    assert os.path.samestat(os.fstat(number), NULL)

    far.close()
    transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_number_that_its_socket_does_not_know_to_be_closed_is_left_alone() -> None:
    """Like uvloop's: after a close the descriptor may belong to another file."""
    with socket.socket() as other:
        release_socket(other)
        other.getsockname()
