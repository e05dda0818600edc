"""The relay of ``make chaos`` must really cut, delay and reset connections, or chaos proves
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest

from testkit.eventually import eventually
from tests.chaos.links import Link

SHORT_S = 0.2


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@dataclass(slots=True)
class Ends:
    """One connection through a link to a server that echoes every frame."""

    link: Link
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    served: list[bytes]

    async def connect(self) -> None:
        await closed(self.writer)
        self.reader, self.writer = await asyncio.open_connection(*self.link.address.split(":"))

    async def ask(self, body: bytes) -> bytes:
        self.writer.write(framed(body))
        return await self.answer()

    async def answer(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def silent(self) -> bool:
        """Assert that nothing arrives for a while."""
        try:
            async with asyncio.timeout(SHORT_S):
                await self.answer()
        except TimeoutError:
            return True
        return False


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def linked(seen_as: Mapping[bytes, bytes] | None = None) -> AsyncIterator[Ends]:
    served: list[bytes] = []
    opened: list[asyncio.StreamWriter] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                served.append(await reader.readexactly(size))
                writer.write(framed(served[-1]))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = Link("test", lambda: f"127.0.0.1:{port}", seen_as or {})
    await link.open()
    ends = Ends(link, *await asyncio.open_connection(*link.address.split(":")), served)
    try:
        yield ends
    finally:
        await link.close()
        server.close()
        for writer in (ends.writer, *opened):
            await closed(writer)


async def test_a_link_forwards_frames_and_substitutes_its_address() -> None:
    async with linked({b"127.0.0.1:11111": b"127.0.0.1:22222"}) as it:
        assert await it.ask(b"home is 127.0.0.1:11111.") == b"home is 127.0.0.1:22222."
        assert it.served == [b"home is 127.0.0.1:11111."]


@pytest.mark.parametrize("action", ["hold", "hold-requests", "hold-answers"])
async def test_held_frames_arrive_when_the_link_is_healed(action: str) -> None:
    async with linked() as it:
        await it.ask(b"before")
        await it.link.begin(action)
        it.writer.write(framed(b"held"))
        assert await it.silent()
        if action == "hold-answers":
            await eventually(lambda: len(it.served) == 2)
        assert it.served == ([b"before", b"held"] if action == "hold-answers" else [b"before"])
        await it.link.heal()
        assert await it.answer() == b"held"


async def test_a_reset_closes_connections_and_refuses_new_ones_until_healed() -> None:
    async with linked() as it:
        await it.ask(b"before")
        await it.link.begin("reset")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await it.ask(b"lost")
        await it.connect()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await it.ask(b"lost, too")
        await it.link.heal()
        await it.connect()
        assert await it.ask(b"after") == b"after"
        assert it.served == [b"before", b"after"]


async def test_a_lost_reply_was_sent_and_its_connection_closes() -> None:
    """Every second time, half of the reply arrives."""
    async with linked() as it:
        await it.link.begin("lose-answers")
        with pytest.raises(asyncio.IncompleteReadError) as torn:
            await it.ask(b"twelve bytes")
        assert it.served == [b"twelve bytes"]
        assert torn.value.partial == b"twel"  # half of the frame, including its length


async def test_a_delayed_link_keeps_the_order() -> None:
    async with linked() as it:
        began = asyncio.get_running_loop().time()
        await it.link.begin("delay", delay_s=0.05)
        for body in (b"a", b"b"):
            it.writer.write(framed(body))
        assert [await it.answer(), await it.answer()] == [b"a", b"b"]
        assert asyncio.get_running_loop().time() - began >= 0.1  # there and back
