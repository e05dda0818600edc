"""A connection that closes sends its whole answer first, and knows that it did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.tasks import spawn
from proxy.downstream.port.connection import Connection, Entry, Reply
from proxy.downstream.port.server import ThriftServer
from proxy.settings.proxy_settings import LimitSettings
from testkit.thrift_client import frame_of
from thrift_idl import consumer, consumer_service

FETCH = consumer_service.fetch_args(request=consumer.FetchRequest(consumerId="c"))
BIG = 200_000


class Line(asyncio.Transport):
    """A transport with room for *room* bytes. It reports nothing more once it is closing, as TLS
    of uvloop does.
    """

    def __init__(self, *, room: int, tls: bool) -> None:
        super().__init__({"sslcontext": object() if tls else None})
        self.protocol: asyncio.Protocol
        self.room = room
        self.sent = 0
        self.held = 0
        self.closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.held

    def write(self, data: Any) -> None:
        self.held += len(data)
        self._send()
        if self.held:
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def read(self, count: int) -> None:
        """Let the client read *count* bytes."""
        self.room += count
        full = self.held > 0
        self._send()
        if full and not self.held and not self.closing:
            self.protocol.resume_writing()
        if self.closing and not self.held:
            self.protocol.connection_lost(None)

    def _send(self) -> None:
        taken = min(self.held, self.room)
        self.held, self.room, self.sent = self.held - taken, self.room - taken, self.sent + taken

    def close(self) -> None:
        self.closing = True
        if not self.held:
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self.closing


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
@pytest.mark.parametrize("left", [1, 1000, 70_000, 150_000])
async def test_an_answer_that_was_sent_whole_while_closing_is_not_lost(
    tls: bool, left: int
) -> None:
    """Its messages would be given to another client although this one has them."""
    lost: list[str] = []

    def fetch(_arguments: Any, reply: Reply) -> None:
        reply.call_if_lost(lambda: lost.append("fetch"))
        big = consumer.Message(value=bytes(BIG), offset=0)
        response = consumer.QidResponse(topic="t", qid="q_0", messages=[big])
        reply(consumer_service.fetch_result(success=consumer.FetchResponse(results=[response])))

    server = ThriftServer({"fetch": Entry(consumer_service.fetch_args, fetch)}, LimitSettings())
    connection = Connection(server, 1)
    line = Line(room=BIG - left, tls=tls)
    line.protocol = connection
    connection.connection_made(line)
    connection.data_received(frame_of("fetch", FETCH))
    await asyncio.sleep(0)
    assert line.sent == BIG - left
    closing = spawn(server.close(grace_s=60), name="close")
    await asyncio.sleep(0)
    for _ in range(left // 10_000 + 1):
        line.read(10_000)
        await asyncio.sleep(0)
    await closing
    assert line.sent > BIG
    assert (line.held, lost, server.load.used) == (0, [], 0)
