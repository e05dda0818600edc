from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from thin_client import ConnectionLost, Puller, Reject, Retry


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy(lease_ms=60_000) as scripted:
        yield scripted


async def test_pull_settle_extend(proxy: ScriptedProxy) -> None:
    """Each call does one thing, and returns whether the lease was still held."""
    await proxy.put(*"abc")
    proxy.lose(2)

    def work() -> tuple[list[bool], float]:
        with Puller(proxy.address, group="g", topics=["orders"], timeout_s=20) as puller:
            first, second, third = puller.pull(10)
            held = [puller.extend(first, 60), puller.extend(second, 60), puller.settle(first)]
            held += [puller.settle(second), puller.settle(third, Reject("bad"))]
            assert puller.pull(wait_s=0.02) == []
            assert second.lease_lost
            return held, first.seconds_left

    held, seconds_left = await asyncio.to_thread(work)

    assert held == [True, False, True, False, True]
    assert 55 < seconds_left < 60
    assert proxy.verdicts == [(1, "ok"), (2, "ok"), (3, "reject")]


async def test_a_lost_connection_is_raised_and_then_replaced(proxy: ScriptedProxy) -> None:
    """Nothing is retried automatically; the next call opens a new connection."""

    async def hang_up(request: Request) -> None:
        raise HangUp

    def work() -> None:
        with Puller(proxy.address, group="g", timeout_s=20) as puller:
            with pytest.raises(ConnectionLost, match="closed the connection during pull"):
                puller.pull()
            (message,) = puller.pull()
            puller.settle(message, Retry(2))

    proxy.script("pull", hang_up)
    await proxy.put("a")
    await asyncio.to_thread(work)

    assert proxy.verdicts == [(1, "retry")]


async def test_the_next_proxy_is_tried(proxy: ScriptedProxy) -> None:
    """The first address that answers is used; if none does, the call raises."""
    async with ScriptedProxy() as dead:
        pass
    await proxy.put("a")
    puller = Puller([dead.address, proxy.address], group="g", timeout_s=20)
    messages = await asyncio.to_thread(puller.pull)
    puller.close()

    assert [message.key for message in messages] == ["a"]
    with pytest.raises(ConnectionLost, match=f"no connection to {dead.address}"):
        Puller(dead.address, group="g").pull()
