"""The simulated network: guarantees for protocols, and effects of faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import patch

import pytest

from broker_core.stop_accepting import stop_accepting
from testkit.simulation.loop import SimulatedLoop, StandsStill
from testkit.simulation.machine import machine_of
from testkit.simulation.world import ClientNode, World, simulate


def run(main: Coroutine[Any, Any, Any], seed: int = 0) -> Any:
    loop = SimulatedLoop(seed)
    with machine_of(loop):
        try:
            return loop.run_until_complete(main)
        finally:
            loop.close()


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost: list[Exception | None] = []
        self.paused = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.paused -= 1


async def pair(world: World) -> tuple[Recorder, Recorder, ClientNode, ClientNode]:
    """Return a connection from the client's process to the server's, with both nodes."""
    client, server = world.add(ClientNode, "client"), world.add(ClientNode, "server")
    far, near = Recorder(), Recorder()
    loop = asyncio.get_running_loop()
    await client.start()
    await server.start()
    await server.do(loop.create_server(lambda: far, server.host, 7000))
    await client.do(loop.create_connection(lambda: near, server.host, 7000))
    await asyncio.sleep(0.1)
    return near, far, client, server


def in_world(play: Any) -> Any:
    async def main(world: World) -> Any:
        return await play(world, *await pair(world))

    return simulate(main, seed=1)


def test_data_arrive_in_order_after_a_latency() -> None:
    async def play(world: World, near: Recorder, far: Recorder, *_: Any) -> None:
        for number in range(100):
            near.transport.write(b"%d," % number)
        assert far.data == b""
        await asyncio.sleep(0.1)
        assert far.data == b"".join(b"%d," % number for number in range(100))

    in_world(play)


def test_a_close_comes_after_the_data() -> None:
    async def play(world: World, near: Recorder, far: Recorder, *_: Any) -> None:
        near.transport.write(b"last words")
        near.transport.close()
        await asyncio.sleep(0.1)
        assert (far.data, far.lost, near.lost) == (b"last words", [None], [None])

    in_world(play)


def test_what_a_cut_holds_up_arrives_when_it_is_healed() -> None:
    async def play(world: World, near: Recorder, far: Recorder, *_: Any) -> None:
        network = world.loop.network
        network.cut("client", "server")
        near.transport.write(b"late")
        far.transport.write(b"in time")
        await asyncio.sleep(5)
        assert (far.data, near.data) == (b"", b"in time")
        network.heal("client", "server")
        await asyncio.sleep(0.1)
        assert (far.data, far.lost, near.lost) == (b"late", [], [])

    in_world(play)


def test_unconfirmed_data_end_a_connection_after_ten_seconds() -> None:
    async def play(world: World, near: Recorder, far: Recorder, *_: Any) -> None:
        world.loop.network.cut("server", "client")  # its confirmations are lost
        near.transport.write(b"arrives")
        await asyncio.sleep(9)
        assert (far.data, near.lost) == (b"arrives", [])
        await asyncio.sleep(2)
        assert isinstance(near.lost[0], TimeoutError)
        await asyncio.sleep(30)
        assert isinstance(far.lost[0], TimeoutError)

    in_world(play)


@pytest.mark.parametrize("stops", [False, True])
def test_a_peer_learns_that_the_other_end_gave_up(stops: bool) -> None:
    """Its requests were lost without a word for ever if the process at the other end had
    stopped.
    """

    async def play(
        world: World, near: Recorder, far: Recorder, client: ClientNode, server: ClientNode
    ) -> None:
        network = world.loop.network
        network.cut("server", "client")
        far.transport.write(b"unconfirmed")
        await asyncio.sleep(11)
        assert isinstance(far.lost[0], TimeoutError)
        if stops:
            server.kill()
        network.heal("server", "client")
        await asyncio.sleep(1)
        assert near.lost == []
        near.transport.write(b"hello?")
        await asyncio.sleep(0.1)
        assert isinstance(near.lost[0], ConnectionResetError)

    in_world(play)


def test_keep_alive_finds_an_end_that_gave_up_and_whose_process_stopped() -> None:
    async def play(
        world: World, near: Recorder, far: Recorder, client: ClientNode, server: ClientNode
    ) -> None:
        world.loop.network.cut("server", "client")
        far.transport.write(b"unconfirmed")
        await asyncio.sleep(11)
        server.kill()
        await asyncio.sleep(30)
        assert isinstance(near.lost[0], TimeoutError)

    in_world(play)


def test_a_killed_process_resets_its_connections_and_its_port_refuses() -> None:
    async def play(
        world: World, near: Recorder, far: Recorder, client: ClientNode, server: ClientNode
    ) -> None:
        server.kill()
        await asyncio.sleep(0.1)
        assert isinstance(near.lost[0], ConnectionResetError)
        assert far.lost == []  # none of its code runs any more
        with pytest.raises(ConnectionRefusedError):
            await client.do(world.loop.create_connection(Recorder, server.host, 7000))

    in_world(play)


def test_a_machine_without_power_is_silent_until_it_is_back() -> None:
    async def play(
        world: World, near: Recorder, far: Recorder, client: ClientNode, server: ClientNode
    ) -> None:
        server.kill(power=True)
        with pytest.raises(TimeoutError):  # no process there refuses a connection
            async with asyncio.timeout(5):
                await client.do(world.loop.create_connection(Recorder, server.host, 7000))
        assert near.lost == []
        await server.start()
        await asyncio.sleep(0.1)
        assert isinstance(near.lost[0], ConnectionResetError)

    in_world(play)


def test_a_paused_process_is_given_everything_later_and_in_order() -> None:
    async def play(
        world: World, near: Recorder, far: Recorder, client: ClientNode, server: ClientNode
    ) -> None:
        server.pause()
        near.transport.write(b"one ")
        await asyncio.sleep(3)
        near.transport.write(b"two")
        await asyncio.sleep(3)
        assert far.data == b""
        server.resume()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert far.data == b"one two"

    in_world(play)


def test_a_reader_that_pauses_holds_up_the_writer() -> None:
    async def play(world: World, near: Recorder, far: Recorder, *_: Any) -> None:
        far.transport.pause_reading()
        for _ in range(20):
            near.transport.write(b"x" * 50_000)
        await asyncio.sleep(1)
        assert (near.paused, far.data) == (1, b"")
        far.transport.resume_reading()
        await asyncio.sleep(1)
        assert (near.paused, len(far.data)) == (0, 1_000_000)

    in_world(play)


def test_a_port_can_be_had_once_and_again_after_its_owner() -> None:
    async def play(
        world: World, near: Recorder, far: Recorder, client: ClientNode, server: ClientNode
    ) -> None:
        listen = world.loop.create_server
        with pytest.raises(OSError, match="already in use"):
            await server.do(listen(Recorder, server.host, 7000))
        server.kill()
        await server.start()
        await server.do(listen(Recorder, server.host, 7000))

    in_world(play)


@pytest.mark.parametrize("stop", [stop_accepting, lambda listener: listener.close()])
def test_a_listener_that_loses_a_connection_by_its_close_is_found(
    stop: Callable[[Any], None],
) -> None:
    """It is closed when a connection has been accepted and is not yet open."""

    async def main() -> tuple[bool, list[str]]:
        loop, far, found = asyncio.get_running_loop(), Recorder(), []
        loop.set_exception_handler(lambda _, context: found.append(str(context["exception"])))
        listener: Any = await loop.create_server(lambda: far, "127.0.0.1", 7000)
        accept = listener.accept

        def accept_and_stop(transport: Any) -> None:
            accept(transport)
            stop(listener)

        with patch.object(listener, "accept", accept_and_stop):
            await loop.create_connection(Recorder, "127.0.0.1", 7000)
        await asyncio.sleep(0.1)
        return far.transport is not None, found

    opened, found = run(main())
    assert opened == (stop is stop_accepting)
    assert ["between the acceptance" in each for each in found] == [True] * (not opened)


def test_time_passes_only_when_nothing_else_is_to_do() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(86_400)
        assert 86_400 <= loop.time() - began < 86_401

    run(main())


def test_timers_of_one_instant_ring_in_an_order_of_the_seed() -> None:
    async def main() -> list[int]:
        rung: list[int] = []
        for number in range(8):
            asyncio.get_running_loop().call_later(1, rung.append, number)
        await asyncio.sleep(2)
        return rung

    orders = [run(main(), seed) for seed in (1, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len({tuple(each) for each in orders}) > 1


def test_a_world_in_which_nothing_can_happen_any_more_says_so() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StandsStill, match="every task waits, and no timer is set"):
        run(main())


def test_threads_of_one_executor_end_in_their_order() -> None:
    async def main() -> list[int]:
        loop, ended = asyncio.get_running_loop(), []
        one = object()
        for number in range(10):
            future = loop.run_in_executor(one, lambda: None)  # type: ignore[arg-type]
            future.add_done_callback(lambda _, number=number: ended.append(number))
        await asyncio.sleep(1)
        return ended

    assert run(main()) == list(range(10))
