"""Thousands of simultaneous take-overs: a few run at a time, and share requests."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from broker_core.errors import RequestTimeout
from broker_core.names import Group, Topic
from broker_core.tasks import spawn
from proxy.upstream.records.take_overs import TakeOvers

BILLING, ORDERS = Group("billing"), Topic("orders")


class Client:
    """A broker that answers on demand."""

    def __init__(self) -> None:
        self.requests: list[asyncio.Future[int]] = []

    async def locks_since_ms(self, _broker: str) -> int:
        self.requests.append(asyncio.get_running_loop().create_future())
        return await self.requests[-1]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def take_overs(client: Client) -> TakeOvers:
    return TakeOvers(client)  # type: ignore[arg-type]


async def turns() -> None:
    """Let all other tasks run as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_callers_during_a_request_share_the_next_answer(
    client: Client, take_overs: TakeOvers
) -> None:
    """Never the one in flight: it may have been given before they asked."""
    first = spawn(take_overs.locks_since_ms("a"), name="test")
    await turns()
    others = [spawn(take_overs.locks_since_ms("a"), name="test") for _ in range(9)]
    await turns()
    assert len(client.requests) == 1
    client.requests[0].set_result(1)
    await turns()
    assert len(client.requests) == 2
    client.requests[1].set_result(2)

    assert await first == 1
    assert await asyncio.gather(*others) == [2] * 9
    assert len(client.requests) == 2


@pytest.mark.failing_tasks
async def test_a_missing_answer_is_requested_by_the_next_caller(
    client: Client, take_overs: TakeOvers
) -> None:
    asking = [spawn(take_overs.locks_since_ms("a"), name="test") for _ in range(2)]
    await turns()
    client.requests[0].set_exception(RequestTimeout("too late"))
    await turns()
    client.requests[1].set_result(2)

    with pytest.raises(RequestTimeout):
        await asking[0]
    assert await asking[1] == 2


@pytest.mark.failing_tasks
async def test_callers_that_waited_for_a_missing_answer_fail_together(
    client: Client, take_overs: TakeOvers
) -> None:
    """One after the other, hundreds would wait for a broker that hangs."""
    asking = [spawn(take_overs.locks_since_ms("a"), name="test") for _ in range(100)]
    await turns()
    client.requests[0].set_exception(RequestTimeout("too late"))
    await turns()
    client.requests[1].set_exception(RequestTimeout("too late"))
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(each, RequestTimeout) for each in outcomes)
    assert len(client.requests) == 2
    later = spawn(take_overs.locks_since_ms("a"), name="test")
    await turns()
    client.requests[2].set_result(3)
    assert await later == 3


async def test_a_broker_that_hangs_delays_no_queue_of_another(take_overs: TakeOvers) -> None:
    async with AsyncExitStack() as busy:
        for _ in range(32):
            await busy.enter_async_context(take_overs.slot("a"))
        async with take_overs.slot("b"):
            pass


async def test_a_few_are_taken_over_at_a_time(take_overs: TakeOvers) -> None:
    going_on, busy, most = asyncio.Event(), 0, 0

    async def take_over() -> None:
        nonlocal busy, most
        async with take_overs.slot("a"):
            busy += 1
            most = max(most, busy)
            await going_on.wait()
            busy -= 1

    tasks = [spawn(take_over(), name="test") for _ in range(100)]
    await turns()
    going_on.set()
    await asyncio.gather(*tasks)

    assert most == 32


async def test_the_start_of_a_group_is_computed_once(take_overs: TakeOvers) -> None:
    """By the first caller; later ones wait, and another group does not."""
    async with take_overs.first_start(BILLING, ORDERS) as first:
        second = take_overs.first_start(BILLING, ORDERS)
        waiting = spawn(second.__aenter__(), name="test")
        await turns()
        assert first
        assert not waiting.done()
        async with take_overs.first_start(Group("shipping"), ORDERS) as other:
            assert other
    assert await waiting is False
    await second.__aexit__(None, None, None)


async def test_the_start_of_a_group_is_computed_again_after_a_failure(
    take_overs: TakeOvers,
) -> None:
    with pytest.raises(RequestTimeout):
        async with take_overs.first_start(BILLING, ORDERS):
            raise RequestTimeout("too late")
    async with take_overs.first_start(BILLING, ORDERS) as first:
        assert first
    take_overs.forget(BILLING)
    async with take_overs.first_start(BILLING, ORDERS) as first:
        assert first
