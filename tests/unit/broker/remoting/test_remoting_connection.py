"""The sans-IO connection: splits bytes into frames, and fails on invalid ones."""

from __future__ import annotations

import tracemalloc

import pytest

from broker_core.errors import LocalProtocolError, RemoteProtocolError
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.connection import (
    NEED_DATA,
    RemotingConnection,
    RequestReceived,
    ResponseReceived,
    Role,
)


def test_requests_and_responses_are_distinguished_at_either_end() -> None:
    client, server = RemotingConnection(Role.CLIENT), RemotingConnection(Role.SERVER)
    request = RemotingCommand(11, opaque=1, ext={"a": "b"}, body=b"x")
    server.receive_data(client.send(request))
    assert server.next_event() == RequestReceived(request)
    assert server.next_event() is NEED_DATA

    answer, notice = request.response(19), RemotingCommand(40).oneway()
    client.receive_data(server.send(answer) + server.send(notice))
    assert client.next_event() == ResponseReceived(answer)
    assert client.next_event() == RequestReceived(notice)
    assert client.next_event() is NEED_DATA


def test_a_body_outlives_the_buffer_it_came_in() -> None:
    connection = RemotingConnection(Role.SERVER)
    frames = [RemotingCommand(1, opaque=n, body=bytes([n]) * 9).encode() for n in (1, 2)]
    connection.receive_data(b"".join(frames))
    first = connection.next_event()
    connection.next_event()
    connection.receive_data(bytes(100))
    assert isinstance(first, RequestReceived)
    assert first.command.body == b"\x01" * 9


@pytest.mark.parametrize(
    ("role", "data", "text"),
    [
        (Role.SERVER, b"\x16\x03\x01", "the client requires TLS, which is not supported here"),
        (Role.CLIENT, b"HTTP/1.1 400", r"the server announced a frame of 1213486160 bytes .*HTTP"),
        (Role.SERVER, b"\x00\x00\x00\x03abc", "frame of 3 bytes"),
        (Role.SERVER, b"\x01\x00\x00\x01", "legal are 4 to 16777216"),
    ],
)
def test_garbage_is_refused_as_soon_as_it_shows(role: Role, data: bytes, text: str) -> None:
    connection = RemotingConnection(role)
    connection.receive_data(data)
    with pytest.raises(RemoteProtocolError, match=text):
        connection.next_event()


def test_a_broken_connection_stays_broken_and_keeps_nothing() -> None:
    connection = RemotingConnection(Role.SERVER)
    connection.receive_data(RemotingCommand(1).encode() + b"\xff" * 8)
    assert connection.next_event() is not NEED_DATA
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            connection.next_event()
        connection.receive_data(RemotingCommand(1).encode())
    assert repr(connection) == "<RemotingConnection server broken>"
    assert not connection.buffered_bytes


def test_0x16_is_tls_only_as_the_very_first_byte() -> None:
    connection = RemotingConnection(Role.SERVER, max_frame_bytes=1 << 30)
    connection.receive_data(RemotingCommand(1).encode())
    connection.next_event()
    connection.receive_data(b"\x16")
    assert connection.next_event() is NEED_DATA


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    empty = len(RemotingCommand(1).encode()) - 4
    sender = RemotingConnection(Role.CLIENT, max_frame_bytes=empty + 10)
    receiver = RemotingConnection(Role.SERVER, max_frame_bytes=empty + 10)
    receiver.receive_data(sender.send(RemotingCommand(1, body=bytes(10))))
    assert receiver.next_event() is not NEED_DATA
    with pytest.raises(LocalProtocolError, match=f"the limit is {empty + 10}"):
        sender.send(RemotingCommand(1, body=bytes(11)))
    receiver.receive_data(RemotingCommand(1, body=bytes(11)).encode())
    with pytest.raises(RemoteProtocolError):
        receiver.next_event()


@pytest.mark.parametrize("step", [1, 3, 7, 50, 333, 4096])
def test_frames_that_come_in_parts_are_put_together(step: int) -> None:
    """Also if one part contains the end of a frame and the beginning of the next one."""
    sent = [
        RemotingCommand(n, opaque=n, ext={"n": "x" * n}, body=bytes([n]) * n**3) for n in range(9)
    ]
    data = b"".join(command.encode() for command in sent)
    connection = RemotingConnection(Role.SERVER)
    got = []
    for at in range(0, len(data), step):
        connection.receive_data(data[at : at + step])
        if at % 2 == 0:  # otherwise several parts wait for the caller
            while (command := connection.next_command()) is not None:
                got.append(command)
    while (command := connection.next_command()) is not None:
        got.append(command)
    assert got == sent
    assert connection.buffered_bytes == 0


def test_a_frame_in_tiny_pieces_costs_its_bytes() -> None:
    connection = RemotingConnection(Role.SERVER)
    body = bytes(range(256)) * 100
    frames = RemotingCommand(1, opaque=1, body=body).encode() * 2
    tracemalloc.start()
    for at in range(len(frames) - 1):
        connection.receive_data(frames[at : at + 1])
        assert not isinstance(connection.next_event(), RemotingCommand)
        if at == len(body):  # within the first frame
            held_bytes, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert held_bytes < 2 * len(body)
    connection.receive_data(frames[-1:])
    last = connection.next_event()
    assert isinstance(last, RequestReceived)
    assert last.command.body == body


@pytest.mark.parametrize("sizes", [(1, 5000), (5000, 1), (4095, 4096, 4097, 2)])
def test_short_and_long_pieces_are_joined_in_order(sizes: tuple[int, ...]) -> None:
    connection = RemotingConnection(Role.SERVER)
    commands = [
        RemotingCommand(1, opaque=n, body=bytes([n]) * (n * 700 % 9000)) for n in range(1, 40)
    ]
    data = b"".join(each.encode() for each in commands)
    found, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        turn += 1
        connection.receive_data(data[at : at + size])
        at += size
        if turn % 3 == 0:
            while (command := connection.next_command()) is not None:
                found.append(command)
    while (command := connection.next_command()) is not None:
        found.append(command)
    assert found == commands
