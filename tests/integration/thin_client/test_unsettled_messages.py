"""A loop that does not settle its messages fails at the second one instead of waiting forever."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from testkit.scripted_proxy import ScriptedProxy
from thin_client import AsyncConsumer, Consumer, Message, Timing

pytestmark = pytest.mark.sockets

PATIENT = Timing(ack_linger_s=0.02, request_timeout_s=20, drain_timeout_s=20)
REFUSED = "orders/.* at offset 0 .* is not settled: handle it inside '(async )?with message:'"


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


async def test_async_loop_without_scopes(proxy: ScriptedProxy) -> None:
    """The second step raises; the first message is returned, and nothing is acked."""
    await proxy.put("a", "a", "b")
    seen = []

    async def work() -> None:
        async with asyncio.timeout(20), AsyncConsumer(proxy.address, group="g") as each:
            async for message in each:
                seen.append(message.key)

    with pytest.raises(RuntimeError, match=REFUSED):
        await work()

    assert seen == ["a"]
    assert (1, "defer") in proxy.verdicts
    assert {said for _, said in proxy.verdicts} == {"defer"}


async def test_blocking_loop_without_scopes(proxy: ScriptedProxy) -> None:
    """The same in the blocking form."""
    await proxy.put("a", "a", "b")
    seen = []

    def work() -> None:
        with Consumer(proxy.address, group="g", timing=PATIENT) as each:
            for message in each:
                seen.append(message.key)

    with pytest.raises(RuntimeError, match=REFUSED):
        await asyncio.to_thread(work)

    assert seen == ["a"]
    assert {said for _, said in proxy.verdicts} == {"defer"}


async def test_async_loop_that_keeps_scopes_open(proxy: ScriptedProxy) -> None:
    """Scopes that are entered and never left would block every key too."""
    await proxy.put("a", "b")

    async def work() -> None:
        async with (
            asyncio.timeout(20),
            AsyncConsumer(proxy.address, group="g") as each,
            contextlib.AsyncExitStack() as scopes,
        ):
            async for message in each:
                await scopes.enter_async_context(message)

    with pytest.raises(RuntimeError, match=REFUSED):
        await work()


async def test_blocking_loop_that_keeps_scopes_open(proxy: ScriptedProxy) -> None:
    """The same in the blocking form."""
    await proxy.put("a", "b")

    def work() -> None:
        with (
            Consumer(proxy.address, group="g", timing=PATIENT) as each,
            contextlib.ExitStack() as scopes,
        ):
            for message in each:
                scopes.enter_context(message)

    with pytest.raises(RuntimeError, match=REFUSED):
        await asyncio.to_thread(work)


async def test_tasks_may_enter_the_scopes(proxy: ScriptedProxy) -> None:
    """A loop that passes each message to its own task continues."""
    await proxy.put("a", "b", "c")
    both = asyncio.Barrier(3)

    async def work(message: Message) -> None:
        async with message:
            await both.wait()

    async with (
        asyncio.timeout(20),
        AsyncConsumer(proxy.address, group="g", timing=PATIENT) as each,
        asyncio.TaskGroup() as tasks,
    ):
        taken = 0
        async for message in each:
            tasks.create_task(work(message))
            taken += 1
            if taken == 3:
                break

    assert sorted(proxy.verdicts) == [(1, "ok"), (2, "ok"), (3, "ok")]


async def test_tasks_may_share_the_iterator(proxy: ScriptedProxy) -> None:
    """Each task is responsible only for its own messages."""
    await proxy.put("a", "b")
    both = asyncio.Barrier(2)

    async def work(each: AsyncConsumer) -> None:
        message = await anext(each)
        await both.wait()
        async with message:
            pass

    async with (
        asyncio.timeout(20),
        AsyncConsumer(proxy.address, group="g", timing=PATIENT) as each,
    ):
        await asyncio.gather(work(each), work(each))

    assert sorted(proxy.verdicts) == [(1, "ok"), (2, "ok")]


async def test_async_loop_that_keeps_plain_scopes_open(proxy: ScriptedProxy) -> None:
    """A message's plain ``with`` is a scope of its task too."""
    await proxy.put("a", "b")

    async def work() -> None:
        async with (
            asyncio.timeout(20),
            AsyncConsumer(proxy.address, group="g") as each,
        ):
            with contextlib.ExitStack() as scopes:
                async for message in each:
                    scopes.enter_context(message)

    with pytest.raises(RuntimeError, match=REFUSED):
        await work()


async def test_messages_that_a_task_took_for_another(proxy: ScriptedProxy) -> None:
    """A step in a task of its own, as ``wait_for`` makes one before Python 3.12."""
    await proxy.put("a", "a")
    seen = []

    async def work() -> None:
        async with asyncio.timeout(20), AsyncConsumer(proxy.address, group="g") as each:
            while True:
                message = await asyncio.get_running_loop().create_task(anext_of(each))
                seen.append(message.key)

    with pytest.raises(RuntimeError, match=REFUSED):
        await work()

    assert seen == ["a"]
    assert {said for _, said in proxy.verdicts} == {"defer"}


async def test_a_task_that_ended_with_its_message(proxy: ScriptedProxy) -> None:
    """Nothing else would settle it, and its key would wait as long as the consumer runs."""
    await proxy.put("a", "a")

    async def take(each: AsyncConsumer) -> None:
        await anext(each)
        raise ValueError("a bug")

    async with (
        asyncio.timeout(20),
        AsyncConsumer(proxy.address, group="g", timing=PATIENT) as each,
    ):
        with pytest.raises(ValueError, match="a bug"):
            await asyncio.get_running_loop().create_task(take(each))
        with pytest.raises(RuntimeError, match=REFUSED):
            await anext(each)


async def test_a_thread_that_ended_with_its_message(proxy: ScriptedProxy) -> None:
    """The same in the blocking form."""
    await proxy.put("a", "a")

    def work() -> None:
        with Consumer(proxy.address, group="g", timing=PATIENT) as each:
            taking = threading.Thread(target=next, args=(each,))
            taking.start()
            taking.join()
            stopping = threading.Timer(5, each.stop)
            stopping.start()
            try:
                next(each, None)
            finally:
                stopping.cancel()

    with pytest.raises(RuntimeError, match=REFUSED):
        await asyncio.to_thread(work)

    assert {said for _, said in proxy.verdicts} == {"defer"}


async def test_a_thread_may_pass_its_message_on_and_end(proxy: ScriptedProxy) -> None:
    """The one who has entered the scope settles it."""
    await proxy.put("a", "b")

    def work() -> None:
        with Consumer(proxy.address, group="g", timing=PATIENT) as each:
            taken: list[Message] = []
            taking = threading.Thread(target=lambda: taken.append(next(each)))
            taking.start()
            taking.join()
            with taken[0], next(each):
                pass

    await asyncio.to_thread(work)

    assert sorted(proxy.verdicts) == [(1, "ok"), (2, "ok")]


async def anext_of(each: AsyncConsumer) -> Message:
    return await anext(each)
