"""A child process closes an inherited socket, and no other file."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.processes import ROOT
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


_FORKS = """
import os
from thin_client import forks

class Client:
    def __init__(self, number):
        self.number = number

    def forked(self):
        if self.number % 2:
            raise OSError("no descriptor is left")
        os.write(1, b"reset ")

clients = [Client(number) for number in range(6)]
for each in clients:
    forks.register(each)
if not (child := os.fork()):
    os._exit(0)
os.waitpid(child, 0)
"""


def test_clients_are_reset_although_others_cannot_be() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _FORKS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout == "reset " * 3
    assert "3 of 6 clients still share sockets" in ended.stderr
    assert "no descriptor is left" in ended.stderr
