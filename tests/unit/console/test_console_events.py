"""The event stream: bounded for each reader, and no reader waits for a slow one."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
import structlog

from proxy.console.events import (
    EVERY_S,
    LONGEST_S,
    MOST_READERS,
    MOST_WAITING,
    Events,
    pause_s,
)
from proxy.errors import Unavailable


class Looks:
    """The sampled state. ``count``: number of samples."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> bytes:
        self.count += 1
        return b'{"n":%d}' % self.count


async def test_a_reader_receives_the_state_at_once_and_then_events() -> None:
    events = Events(Looks(), every_s=3600)
    pieces = aiter(events.read())
    assert await anext(pieces) == b"retry: 3000\n\n"
    assert await anext(pieces) == b'id: 1\nevent: overview\ndata: {"n":1}\n\n'
    await events.tell()
    assert await anext(pieces) == b'id: 2\nevent: overview\ndata: {"n":2}\n\n'
    await pieces.aclose()  # type: ignore[attr-defined]
    assert events.readers == 0
    await events.close()


async def test_all_readers_share_one_sample_and_none_is_taken_without_readers() -> None:
    looks = Looks()
    events = Events(looks, every_s=3600)
    readers = [aiter(events.read()) for _ in range(3)]
    for pieces in readers:
        await anext(pieces)
        assert b"id: 1\n" in await anext(pieces)
    assert looks.count == 1
    await events.tell()
    assert looks.count == 2
    for pieces in readers:
        await pieces.aclose()  # type: ignore[attr-defined]
    await events.close()


async def test_a_new_reader_waits_for_no_pause() -> None:
    events = Events(Looks(), every_s=3600)
    for number in (b"id: 1\n", b"id: 2\n"):
        pieces = aiter(events.read())
        await anext(pieces)
        assert number in await anext(pieces)
    await events.close()


async def test_a_slow_reader_is_dropped_and_counted_and_others_continue() -> None:
    events = Events(Looks(), every_s=3600)
    slow, quick = events.read(), events.read()
    cut = []
    slow.call_if_dropped(lambda: cut.append("slow"))
    pieces = aiter(quick)
    for _ in range(MOST_WAITING):
        await events.tell()
        await anext(pieces)
    assert (cut, events.dropped, events.readers) == (["slow"], 1, 1)
    await anext(pieces)
    assert [piece async for piece in slow] == []  # it ends without old events
    await events.close()


async def test_more_readers_than_the_limit_are_refused_and_counted() -> None:
    events = Events(Looks(), every_s=3600)
    for _ in range(MOST_READERS):
        events.read()
    with pytest.raises(Unavailable, match="close one of them"):
        events.read()
    assert events.refused == 1
    await events.close()


async def test_closing_ends_all_streams_and_refuses_new_ones() -> None:
    events = Events(Looks(), every_s=3600)
    reader = events.read()

    async def read_all() -> list[bytes]:
        return [piece async for piece in reader]

    reading = asyncio.gather(read_all())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await events.close()
    await reading
    with pytest.raises(Unavailable, match="the proxy is stopping"):
        events.read()


async def test_events_are_sent_periodically() -> None:
    events = Events(Looks(), every_s=0.001)
    pieces = aiter(events.read())
    await anext(pieces)
    numbers = [(await anext(pieces)).split(b"data: ")[1] for _ in range(3)]
    assert numbers == [b'{"n":1}\n\n', b'{"n":2}\n\n', b'{"n":3}\n\n']
    await events.close()


async def test_one_failed_sample_ends_no_stream() -> None:
    looks = Looks()

    async def look() -> bytes:
        piece = await looks()
        if looks.count == 2:
            raise ValueError("a bug")
        return piece

    events = Events(look, every_s=0.001)
    pieces = aiter(events.read())
    await anext(pieces)
    assert b'{"n":1}' in await anext(pieces)
    with structlog.testing.capture_logs() as logs:
        assert b'{"n":3}' in await asyncio.wait_for(anext(pieces), 5)
    assert [line["exc_info"] for line in logs]
    await events.close()


def test_the_longer_a_look_takes_the_longer_is_the_pause() -> None:
    assert [pause_s(took_s) for took_s in (0.001, 0.1, 1.0)] == [EVERY_S, 5.0, LONGEST_S]


@pytest.mark.parametrize("took_s", [0.5, 1.5, 4.0])
async def test_a_page_hears_of_a_busy_proxy_before_it_takes_it_for_dead(took_s: float) -> None:
    looks = Looks()

    async def look() -> bytes:
        await asyncio.sleep(took_s)
        return await looks()

    loop = asyncio.get_running_loop()
    events = Events(look)
    pieces = aiter(events.read())
    await anext(pieces)
    came_s = []
    for _ in range(4):
        await anext(pieces)
        came_s.append(loop.time())
    gaps = [after - before for before, after in pairwise(came_s)]
    assert max(gaps) <= LONGEST_S + took_s + 0.1
    await events.close()
