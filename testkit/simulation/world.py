"""A world: nameserver, brokers, proxies, producers and consumers, each a process of its own.

They are the real parts; what is simulated is the machine below them. Code outside of all processes
drives the world: it starts, kills, pauses and asks them, and the ``nemesis`` events tell the
checker of faults.
"""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson
import yaml

from broker_core.broker import Broker, BrokerSettings
from broker_core.client import BrokerClient
from broker_core.errors import ConnectionLost
from broker_core.names import Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting import headers
from broker_core.remoting.codes import RequestCode
from proxy.app import Proxy
from proxy.live.settings_file import SettingsFile
from proxy.settings.proxy_settings import load_settings
from testkit.simulation.disk import Disk
from testkit.simulation.history import Event, Pen
from testkit.simulation.loop import SimulatedLoop
from testkit.simulation.machine import machine_of
from testkit.simulation.process import PROCESS, SimulatedProcess, State

T = TypeVar("T")

NAMESERVER = "nameserver"
THRIFT_PORT, HTTP_PORT, NAMESERVER_PORT, BROKER_PORT = 9713, 9714, 9876, 10911


class Died(Exception):
    """The process that was asked died meanwhile."""


class Node:
    """One place in the world where a process runs, dies, and is started again."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world = world
        self.name = name
        self.host = f"127.0.{number // 250}.{number % 250 + 1}"
        self.folder = world.disk.folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process: SimulatedProcess | None = None
        self._serving: SimulatedProcess | None = None  # the one that has started, until a signal
        self.lives = 0

    def __repr__(self) -> str:
        return (
            f"<Node {self.name} {'absent' if self.process is None else self.process.state.value}>"
        )

    @property
    def runs(self) -> bool:
        """True while its process is neither dead nor paused."""
        return self.process is not None and self.process.runs

    @property
    def lives_now(self) -> bool:
        """True while it has a process, paused or not."""
        return self.process is not None and self.process.state is not State.DEAD

    def new_process(self) -> SimulatedProcess:
        """A process that has just begun."""
        self.lives += 1
        self.process = self.world.new_process(self)
        return self.process

    async def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* as its process and return what it does. Raises Died."""
        process = self.process
        if process is None or process.state is State.DEAD:
            coroutine.close()
            raise Died(self.name)
        return await self.world.run_in(process, coroutine)

    def work(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run *main* in its process; a failure is kept for the end of the world."""
        assert self.process is not None
        return self.world.start_in(self.process, main, name=self.name)

    async def begin_to_serve(self, starting: Coroutine[Any, Any, Any]) -> None:
        """Run *starting*; from then on the process heeds SIGTERM. Raises Died."""
        process = self.process
        await self.do(starting)
        self._serving = process

    async def end_by_signal(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """SIGTERM: *close*, then end. It kills a process that is still starting, and one that got
        the signal before. Raises Died.
        """
        if self._serving is self.process:
            self._serving = None
            await self.do(close())
        self.kill()

    def kill(self, *, power: bool = False) -> None:
        """End it as ``kill -9`` does, or (*power*) as a machine that loses its power."""
        if self.process is not None and self.process.state is not State.DEAD:
            self.world.end(self.process, power=power)
            if power:
                self.world.disk.lose_power(self.folder)

    def pause(self) -> None:
        """Stop it, as by SIGSTOP."""
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """Let it go on."""
        if self.process is not None:
            self.world.loop.resume(self.process)

    def jump_clock(self, by_s: float) -> None:
        """Move the wall clock of its machine."""
        if self.process is not None:
            self.process.jump_clock(by_s)


class NameserverNode(Node):
    """The nameserver."""

    async def start(self) -> None:
        """Start it; raises OSError."""
        self.new_process()
        self._server = NameServer(self.host, NAMESERVER_PORT, data=self.folder)
        await self.begin_to_serve(self._server.start())

    async def stop(self) -> None:
        """End it by its own will."""
        await self.end_by_signal(self._server.close)

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{self.host}:{NAMESERVER_PORT}"


class BrokerNode(Node):
    """One embedded broker; *settings* are fields of BrokerSettings."""

    def __init__(self, world: World, name: str, number: int, settings: Mapping[str, Any]) -> None:
        super().__init__(world, name, number)
        self.settings = dict(settings)

    def configure(self, **settings: Any) -> None:
        """Give it these fields of BrokerSettings from its next start on."""
        self.settings |= settings

    async def delete_expired(self) -> None:
        """Apply retention now."""
        await self.do(self._broker.components.delete_expired())

    async def start(self) -> None:
        """Start it on what its disk has. Raises StoreError."""
        process = self.new_process()
        self._pen = process.run(lambda: Pen(self.world.events, self.name, parts=("broker",)))
        process.at_death.append(self._pen.silence)
        self._broker = Broker(
            BrokerSettings(
                **{
                    "data": self.folder / "data",
                    "listen": f"{self.host}:{BROKER_PORT}",
                    "nameserver": (self.world.nameserver.address,),
                    "broker_name": self.name,
                    "segment_bytes": 1024 * 1024,
                    "max_message_bytes": 256 * 1024,
                    **self.settings,
                }
            )
        )
        await self.begin_to_serve(self._broker.start())

    async def stop(self) -> None:
        """End it by its own will."""
        await self.end_by_signal(self._close)

    async def _close(self) -> None:
        await self._broker.close()
        self._pen.close()


class ProxyNode(Node):
    """One proxy; its groups come from the world's settings file."""

    async def start(self) -> None:
        """Start it."""
        process = self.new_process()
        given = {
            "nameserver": self.world.nameserver.address,
            "listen.thrift": f"{self.host}:{THRIFT_PORT}",
            "listen.http": f"{self.host}:{HTTP_PORT}",
            **self.world.proxy_settings,
        }
        file = SettingsFile(self.world.settings_path, given, environment={})
        settings = load_settings(self.world.settings_path, given, environment={})

        def make() -> Proxy:
            self.pen = Pen(self.world.events, self.name)
            return Proxy(settings, history=self.pen, file=file)

        self.proxy = process.run(make)
        process.at_death.append(self.pen.silence)
        await self.begin_to_serve(self.proxy.start())

    async def stop(self) -> None:
        """Drain and end it."""
        await self.end_by_signal(self.proxy.close)

    @property
    def thrift(self) -> str:
        """Where clients find it."""
        return f"{self.host}:{THRIFT_PORT}"

    @property
    def http(self) -> str:
        """Where operators find it."""
        return f"{self.host}:{HTTP_PORT}"


class ClientNode(Node):
    """A process that runs one coroutine function until it ends or is killed."""

    async def start(self) -> None:
        """Nothing runs in it yet: see ``work``."""
        self.new_process()


class _Tasks:
    """Those of one process, in the order of their starts. They tell nobody of their ends: that
    would be one more callback each.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self._tidied = 64  # so many make it worth while to look which have ended

    def add(self, task: asyncio.Task[Any]) -> None:
        """One more."""
        self._tasks.append(task)
        if len(self._tasks) > self._tidied:
            self._tasks = self.under_way()
            self._tidied = 2 * len(self._tasks) + 64

    def under_way(self) -> list[asyncio.Task[Any]]:
        """Those that have not ended."""
        return [task for task in self._tasks if not task.done()]


class World:
    """All of it. See ``world``, which makes one."""

    def __init__(self, loop: SimulatedLoop, folder: Path, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.events: list[Event] = []
        self.failures: list[BaseException] = []
        """What tasks of processes and the loop's handler were surprised by."""
        self.disk = Disk(folder, random.Random(f"{seed}/disk"))
        self.settings_path = folder / "settings.yaml"
        self.proxy_settings: dict[str, Any] = {}
        self._numbers = 0
        self._processes = 0
        self._graves: list[Any] = []
        self._tasks: dict[SimulatedProcess, _Tasks] = {}
        self.nodes: dict[str, Node] = {}
        self.nameserver = self.add(NameserverNode, NAMESERVER)
        self.nemesis = Pen(self.events, "nemesis")
        self._operator: ClientNode | None = None
        loop.set_task_factory(self._new_task)

    def configure_proxies(self, settings: dict[str, Any]) -> None:
        """Give proxies that start from now on these settings, beside those of the world."""
        self.proxy_settings = settings

    def add(self, kind: Callable[..., T], name: str, *more: Any) -> T:
        """A new place of that kind."""
        self._numbers += 1
        node = kind(self, name, self._numbers, *more)
        self.nodes[name] = node  # type: ignore[assignment]
        return node

    # ---- processes ------------------------------------------------------------------------------

    def new_process(self, node: Node) -> SimulatedProcess:
        """The next life of *node*."""
        self._processes += 1
        self.loop.network.host_is_back(node.host)
        chance = random.Random(f"{self.seed}/{node.name}/{node.lives}")
        process = SimulatedProcess(node.name, number=self._processes, host=node.host, chance=chance)
        self._tasks[process] = _Tasks()
        return process

    def _new_task(self, loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context")
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            self._tasks[process].add(task)
        return task

    def start_in(
        self,
        process: SimulatedProcess,
        coroutine: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
    ) -> asyncio.Task[T]:
        """Run *coroutine* as *process*; what it fails with is one of ``failures``."""
        task = self.loop.create_task(coroutine, name=name, context=process.context.copy())

        def ended(task: asyncio.Task[T]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.failures.append(error)

        task.add_done_callback(ended)
        return task

    async def run_in(self, process: SimulatedProcess, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* as *process* and return what it does. Raises Died."""
        outcome: asyncio.Future[T] = self.loop.create_future()
        task = self.loop.create_task(coroutine, context=process.context.copy())

        def ended(task: asyncio.Task[T]) -> None:
            if outcome.done():
                if not task.cancelled():
                    task.exception()
            elif task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def died() -> None:
            if not outcome.done():
                outcome.set_exception(Died(process.name))

        task.add_done_callback(ended)
        process.at_death.append(died)
        return await outcome

    def end(self, process: SimulatedProcess, *, power: bool) -> None:
        """*process* runs no more; its connections and locks are gone."""
        process.kill()
        self.loop.network.end_of(process, silent=power)
        self.disk.release(process)
        if (tasks := self._tasks.pop(process, None)) is not None:
            self._graves += tasks.under_way()

    # ---- what it consists of --------------------------------------------------------------------

    async def start(self, brokers: Mapping[str, Mapping[str, Any]]) -> None:
        """Start the nameserver and *brokers*: settings by name."""
        await self.nameserver.start()
        for name, settings in brokers.items():
            await self.add(BrokerNode, name, settings).start()
        self._operator = self.add(ClientNode, "operator")
        await self._operator.start()
        self._admin = BrokerClient(
            nameservers=[self.nameserver.address], client_id="operator@1#1", request_timeout_s=5
        )
        await self._operator.do(self._admin.start())

    @property
    def operator(self) -> ClientNode:
        """The process that asks brokers and proxies on behalf of people."""
        assert self._operator is not None
        return self._operator

    @property
    def brokers(self) -> list[BrokerNode]:
        """All of them."""
        return [node for node in self.nodes.values() if isinstance(node, BrokerNode)]

    @property
    def proxies(self) -> list[ProxyNode]:
        """All of them."""
        return [node for node in self.nodes.values() if isinstance(node, ProxyNode)]

    def write_settings(self, groups: list[dict[str, Any]]) -> None:
        """The groups that proxies serve, from their next look at the file on."""
        fresh = self.settings_path.with_suffix(".new")
        fresh.write_text(yaml.safe_dump({"groups": groups}, sort_keys=False))
        fresh.replace(self.settings_path)

    async def make_topic(
        self,
        topic: str,
        queues: int,
        *,
        write_queues: int | None = None,
        broker: str | None = None,
    ) -> None:
        """Create or change a topic at all brokers, or at *broker*. Raises RemotingError; before
        anything is made, if one of them does not run: it would come back without.
        """
        header = headers.CreateTopicHeader(
            topic=Topic(topic),
            read_queue_nums=queues,
            write_queue_nums=queues if write_queues is None else write_queues,
            perm=6,
        )
        await self._ask_brokers(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_ext(), broker)

    async def delete_topic(self, topic: str, *, broker: str | None = None) -> None:
        """Delete a topic everywhere, or at *broker* alone. Raises RemotingError; before anything is
        deleted, if a broker does not run: it would come back with its queues.
        """
        header = headers.TopicHeader(topic=Topic(topic))
        await self._ask_brokers(RequestCode.DELETE_TOPIC_IN_BROKER, header.to_ext(), broker)
        if broker is None:
            await self.forget_topic(topic)

    async def forget_topic(self, topic: str) -> None:
        """Have the nameserver forget a topic that is deleted at all brokers. Raises
        RemotingError.
        """
        await self.operator.do(self._admin.deletions.forget_topic(Topic(topic)))

    async def _ask_brokers(
        self, code: RequestCode, ext: dict[str, str], broker: str | None
    ) -> None:
        asked = [each for each in self.brokers if broker in (None, each.name)]
        if away := [each.name for each in asked if not each.runs]:
            raise ConnectionLost(f"not running: {', '.join(away)}")

        async def ask() -> None:
            for each in asked:
                await self._admin.requests.ask(each.name, code, ext)

        await self.operator.do(ask())

    async def http(
        self,
        proxy: ProxyNode,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        timeout_s: float = 5,
    ) -> tuple[int, Any]:
        """Ask a proxy as an operator does: status and JSON answer; status 0: no answer came."""
        return await self.operator.do(_ask(proxy.http, path, body, timeout_s))

    def close(self) -> None:
        """End all that still lives, and let go of it."""
        for node in self.nodes.values():
            node.kill()
        self.nemesis.silence()
        self.loop.set_task_factory(None)
        # Tasks of dead processes never end, which asyncio would report of each.
        self.loop.set_exception_handler(lambda *_: None)
        for task in self._graves:
            with suppress(BaseException):
                task.get_coro().close()
        self._graves.clear()


async def _ask(
    address: str, path: str, body: dict[str, Any] | None, timeout_s: float
) -> tuple[int, Any]:
    host, _, port = address.partition(":")
    content = b"" if body is None else orjson.dumps(body)
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {address}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(head.encode() + content)
                answer = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return 0, None
    front, _, rest = answer.partition(b"\r\n\r\n")
    if not front:
        return 0, None
    status = int(front.split(b" ", 2)[1])
    if b"transfer-encoding: chunked" in front.lower():
        rest = _unchunked(rest)
    try:
        return status, orjson.loads(rest)
    except orjson.JSONDecodeError:
        return status, rest.decode("utf-8", "replace")


def _unchunked(data: bytes) -> bytes:
    parts = []
    while data:
        size_text, _, data = data.partition(b"\r\n")
        size = int(size_text or b"0", 16)
        parts.append(data[:size])
        data = data[size + 2 :]
    return b"".join(parts)


@asynccontextmanager
async def _open_world(loop: SimulatedLoop, folder: Path, seed: int) -> AsyncIterator[World]:
    made = World(loop, folder, seed)
    with made.disk.install():
        try:
            yield made
        finally:
            made.close()


def simulate(
    play: Callable[[World], Coroutine[Any, Any, T]],
    *,
    seed: int,
    loop_of: Callable[[int], SimulatedLoop] = SimulatedLoop,
) -> T:
    """Make a world, run *play* in it to its end, and return what it does. *loop_of* makes its event
    loop of the *seed*.
    """
    loop = loop_of(seed)
    folder = Path(tempfile.mkdtemp(prefix="orderlane-world-", dir=_fast_folder()))

    async def main() -> T:
        async with _open_world(loop, folder, seed) as made:
            loop.set_exception_handler(
                lambda _loop, context: made.failures.append(
                    context.get("exception") or RuntimeError(context["message"])
                )
            )
            return await play(made)

    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(machine_of(loop))
        collecting = gc.isenabled()
        gc.disable()  # what it frees, and when, is not to be seen in the history
        try:
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(main())
        finally:
            loop.set_exception_handler(lambda *_: None)
            asyncio.set_event_loop(None)
            loop.close()
            if collecting:
                gc.enable()


def _fast_folder() -> str | None:
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None
