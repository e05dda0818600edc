"""Objects with a socket or a name detect that they run in another process, and start over."""

from __future__ import annotations

import asyncio
import gc
import json
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testkit.processes import ROOT
from testkit.scripted_proxy import Request, ScriptedProxy
from tests.integration.thin_client.forked_clients import CHILDREN, EACH, TERMINATING
from thin_client import AsyncProducer, Producer, chance
from thrift_idl import producer

pytestmark = pytest.mark.sockets


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy(lease_ms=20_000) as scripted:
        yield scripted


async def said(proxy: ScriptedProxy, form: str) -> list[Any]:
    """Return the results of a process's children, in order."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.integration.thin_client.forked_clients", form, proxy.address),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    lines = sorted(map(json.loads, out.splitlines()), key=lambda line: line["child"])
    return [line["said"] for line in lines]


def connections(proxy: ScriptedProxy, key: str) -> set[int]:
    """Return the connections over which messages with *key* arrived."""
    return {each.connection for each in proxy.of("sendSync") if each.argument.key == key}


@pytest.mark.parametrize("form", ["producer", "async_producer", "running_loop"])
async def test_each_process_sends_on_a_connection_of_its_own(
    proxy: ScriptedProxy, form: str
) -> None:
    """All messages are stored, and no process reads another's answers."""
    processes = await said(proxy, form)

    assert len(set(processes)) == CHILDREN
    used = [connections(proxy, f"child {number}") for number in range(CHILDREN)]
    assert [len(each) for each in used] == [1] * CHILDREN
    parents = connections(proxy, "parent")
    assert len(parents) == 1  # no child closed the parent's connection
    assert len(parents.union(*used)) == 1 + CHILDREN
    bodies = [each.argument.body for each in proxy.of("sendSync")]
    for process in processes:
        assert bodies.count(str(process).encode()) == EACH


@pytest.mark.parametrize("form", TERMINATING)
async def test_a_signal_to_a_child_ends_the_child_alone(proxy: ScriptedProxy, form: str) -> None:
    """The parent's consumer goes on, and handles the next message of the key."""
    await proxy.put("a")
    handling = asyncio.get_running_loop().create_task(said(proxy, form))
    await proxy.until(lambda: bool(proxy.verdicts) or handling.done())
    await proxy.put("b")

    assert await handling == [-signal.SIGTERM, "b"]


async def test_a_refused_message_is_not_taken_for_stored(proxy: ScriptedProxy) -> None:
    """A child receives its own refusal while others receive OK."""

    async def refuse(request: Request) -> producer.Result:
        if request.argument.key == "child 1":
            return producer.Result(code=11, msg="illegal")
        return producer.Result(code=0)

    proxy.script("sendSync", *[refuse] * (2 + CHILDREN * EACH))
    first, second, third = await said(proxy, "producer")

    assert isinstance(first, int)
    assert "illegal" in str(second)
    assert isinstance(third, int)


async def test_a_lock_held_at_the_fork_does_not_block_children(proxy: ScriptedProxy) -> None:
    """Another thread of the parent sends: the children do not wait for its end."""

    async def slow(request: Request) -> producer.Result:
        await asyncio.sleep(2)
        return producer.Result(code=0)

    proxy.script("sendSync", slow)

    assert await said(proxy, "busy_producer") == [True] * CHILDREN


async def test_a_puller_connects_again(proxy: ScriptedProxy) -> None:
    """A plain call in a child goes over its own connection."""
    assert await said(proxy, "puller") == [0] * CHILDREN

    used = [each.connection for each in proxy.of("pull")]
    assert len(used) == CHILDREN + 2
    assert len(set(used)) == CHILDREN + 1


@pytest.mark.parametrize("form", ["consumer", "async_consumer"])
async def test_consumers_of_children_have_names_of_their_own(
    proxy: ScriptedProxy, form: str
) -> None:
    """No two use one request ID, for which a proxy would give both the same messages."""
    await proxy.put("a", "b", "c")

    assert sorted(await said(proxy, form)) == ["a", "b", "c"]

    asked = {(each.argument.clientId, each.argument.requestId) for each in proxy.of("pull")}
    assert len({client for client, _ in asked}) == CHILDREN
    assert len({name for _, name in asked}) == len(proxy.of("pull"))


@pytest.mark.slow
async def test_a_started_consumer_is_its_parents(proxy: ScriptedProxy) -> None:
    """A child gets an error, sends nothing and does not hang; the parent continues."""
    await proxy.put("a")

    answers = await said(proxy, "started_consumer")

    refused = [each for each in answers if each is not None]
    assert len(refused) == 2 * CHILDREN
    assert all("this consumer was started in process" in each for each in refused)
    assert proxy.verdicts == [(1, "ok")]


async def test_connections_begin_at_a_random_number(proxy: ScriptedProxy) -> None:
    """Their numbers reveal two mixed-up connections."""

    def work() -> None:
        for _ in range(3):
            with Producer(proxy.address) as each:
                each.send("orders", b"x")

    await asyncio.to_thread(work)

    assert len({each.number for each in proxy.of("sendSync")}) == 3


async def test_numbers_go_on_at_zero(proxy: ScriptedProxy) -> None:
    """After the highest number of Thrift."""

    def work() -> None:
        with (
            chance.use_source(lambda: 0.9999999999, secrets.token_bytes),
            Producer(proxy.address) as each,
        ):
            for _ in range(3):
                each.send("orders", b"x")

    await asyncio.to_thread(work)

    assert [each.number for each in proxy.of("sendSync")] == [chance.MAX_REQUEST_NUMBER, 0, 1]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_another_event_loop_gets_another_connection(proxy: ScriptedProxy) -> None:
    """An answer on the connection of a closed loop would not be received."""

    def work() -> None:
        shared = AsyncProducer(proxy.address, timeout_s=10)
        for _ in range(3):
            asyncio.run(_send(shared))
        shared.close()

    await asyncio.to_thread(work)
    gc.collect()  # its warnings belong to this test, not to the next one

    assert len({each.connection for each in proxy.of("sendSync")}) == 3


async def _send(shared: AsyncProducer) -> None:
    await shared.send("orders", b"x", key="k")
