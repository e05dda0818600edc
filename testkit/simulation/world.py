"""A world: nameserver, brokers, proxies, producers and consumers, each a process of its own.

The components are real; only the machine below them is simulated. Code outside of all processes
drives the world: it starts, kills, pauses and queries them, and ``nemesis`` events report faults to
the checker.
"""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson
import yaml

from broker_core.broker import Broker, BrokerSettings
from broker_core.broker.replicas.replica import Replica
from broker_core.client import BrokerClient
from broker_core.errors import ConnectionLost
from broker_core.names import Group, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting import headers
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.group_bodies import GroupConfig
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
    """The process died during the call."""


class Node:
    """One place in the world where a process runs, dies, and is restarted."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world = world
        self.name = name
        self.host = f"127.0.{number // 250}.{number % 250 + 1}"
        self.folder = world.disk.folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process: SimulatedProcess | None = None
        self._serving: SimulatedProcess | None = None  # started, until a signal
        self.lives = 0

    def __repr__(self) -> str:
        return (
            f"<Node {self.name} {'absent' if self.process is None else self.process.state.value}>"
        )

    @property
    def runs(self) -> bool:
        """Whether its process is neither dead nor paused."""
        return self.process is not None and self.process.runs

    @property
    def lives_now(self) -> bool:
        """Whether it has a process, paused or not."""
        return self.process is not None and self.process.state is not State.DEAD

    def new_process(self) -> SimulatedProcess:
        """Return a process that has just started."""
        self.lives += 1
        self.process = self.world.new_process(self)
        return self.process

    async def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* in its process and return the result. Raises Died."""
        process = self.process
        if process is None or process.state is State.DEAD:
            coroutine.close()
            raise Died(self.name)
        return await self.world.run_in(process, coroutine)

    def work(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run *main* in its process; a failure is reported at the end of the world."""
        assert self.process is not None
        return self.world.start_in(self.process, main, name=self.name)

    async def begin_to_serve(self, starting: Coroutine[Any, Any, Any]) -> None:
        """Run *starting*; from then on the process handles SIGTERM. Raises Died."""
        process = self.process
        await self.do(starting)
        self._serving = process

    async def end_by_signal(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Send SIGTERM: run *close*, then end.

        Kills a process that is still starting, or that already received the signal. Raises Died.
        """
        if self._serving is self.process:
            self._serving = None
            await self.do(close())
        self.kill()

    def kill(self, *, power: bool = False) -> None:
        """Kill it like ``kill -9`` or, with *power*, like a power loss of its machine."""
        if self.process is not None and self.process.state is not State.DEAD:
            self.world.end(self.process, power=power)
            if power:
                self.world.disk.lose_power(self.folder)

    def pause(self) -> None:
        """Pause it like SIGSTOP."""
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """Resume it."""
        if self.process is not None:
            self.world.loop.resume(self.process)

    def jump_clock(self, by_s: float) -> None:
        """Change the wall clock of its machine."""
        if self.process is not None:
            self.process.jump_clock(by_s)


class NameserverNode(Node):
    """The nameserver."""

    async def start(self) -> None:
        """Start it. Raises OSError."""
        self.new_process()
        self._server = NameServer(self.host, NAMESERVER_PORT, data=self.folder)
        await self.begin_to_serve(self._server.start())

    async def stop(self) -> None:
        """Stop it gracefully."""
        await self.end_by_signal(self._server.close)

    @property
    def address(self) -> str:
        """Its address for clients."""
        return f"{self.host}:{NAMESERVER_PORT}"


class BrokerNode(Node):
    """One embedded broker; *settings* are fields of BrokerSettings."""

    def __init__(self, world: World, name: str, number: int, settings: Mapping[str, Any]) -> None:
        super().__init__(world, name, number)
        self.settings = dict(settings)

    @property
    def broker_name(self) -> str:
        """The name of the broker; its replicas share it."""
        return str(self.settings.get("broker_name", self.name))

    def configure(self, **settings: Any) -> None:
        """Set these fields of BrokerSettings from its next start on."""
        self.settings |= settings

    @property
    def replica(self) -> Replica | None:
        """The role of its broker, None while it is not open."""
        if not self.lives_now or not self._broker.is_open:
            return None
        return self._broker.components.replica

    async def delete_expired(self) -> None:
        """Apply retention now."""
        await self.do(self._broker.components.delete_expired())

    async def start(self) -> None:
        """Start it on the contents of its disk. Raises StoreError."""
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
        """Stop it gracefully."""
        await self.end_by_signal(self._close)

    async def _close(self) -> None:
        await self._broker.close()
        self._pen.close()


class ProxyNode(Node):
    """One proxy; its groups are in the world's settings file."""

    pen: Pen
    """The history of its newest process."""

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
        """Its address for clients."""
        return f"{self.host}:{THRIFT_PORT}"

    @property
    def http(self) -> str:
        """Its address for operators."""
        return f"{self.host}:{HTTP_PORT}"


class ClientNode(Node):
    """A process that runs one coroutine function until it ends or is killed."""

    async def start(self) -> None:
        """Start an empty process; see ``work``."""
        self.new_process()


class _Tasks:
    """Tasks of one process, in order of their starts.

    They have no done callbacks, to save one callback each.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self._tidied = 64  # task count at which ended ones are removed

    def add(self, task: asyncio.Task[Any]) -> None:
        """Add a task."""
        self._tasks.append(task)
        if len(self._tasks) > self._tidied:
            self._tasks = self.under_way()
            self._tidied = 2 * len(self._tasks) + 64

    def under_way(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended."""
        return [task for task in self._tasks if not task.done()]


class World:
    """A whole world; ``simulate`` creates one."""

    def __init__(self, loop: SimulatedLoop, folder: Path, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.events: list[Event] = []
        self.failures: list[BaseException] = []
        """Unexpected errors of processes' tasks and of the loop."""
        self.disk = Disk(folder, random.Random(f"{seed}/disk"))
        self.settings_path = folder / "settings.yaml"
        self.proxy_settings: dict[str, Any] = {}
        self.token: str | None = None
        """Access token of operators, if proxies need one."""
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
        """Give proxies that start from now on these settings, in addition to those of the world."""
        self.proxy_settings = settings

    def show_token(self, token: str | None) -> None:
        """Let operators show this access token to proxies."""
        self.token = token

    def add(self, kind: Callable[..., T], name: str, *more: Any) -> T:
        """Add a node."""
        self._numbers += 1
        node = kind(self, name, self._numbers, *more)
        self.nodes[name] = node  # type: ignore[assignment]
        return node

    # ---- processes ------------------------------------------------------------------------------

    def new_process(self, node: Node) -> SimulatedProcess:
        """Return a new process of *node*."""
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
        """Run *coroutine* in *process*; its error is added to ``failures``."""
        task = self.loop.create_task(coroutine, name=name, context=process.context.copy())

        def ended(task: asyncio.Task[T]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.failures.append(error)

        task.add_done_callback(ended)
        return task

    async def run_in(self, process: SimulatedProcess, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* in *process* and return the result. Raises Died."""
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
        """End *process* with its connections and locks."""
        process.kill()
        self.loop.network.end_of(process, silent=power)
        self.disk.release(process)
        if (tasks := self._tasks.pop(process, None)) is not None:
            self._graves += tasks.under_way()

    # ---- nodes ----------------------------------------------------------------------------------

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
        """The process that asks brokers and proxies on behalf of operators."""
        assert self._operator is not None
        return self._operator

    @property
    def brokers(self) -> list[BrokerNode]:
        """All brokers."""
        return [node for node in self.nodes.values() if isinstance(node, BrokerNode)]

    @property
    def proxies(self) -> list[ProxyNode]:
        """All proxies."""
        return [node for node in self.nodes.values() if isinstance(node, ProxyNode)]

    def write_settings(self, groups: list[dict[str, Any]]) -> None:
        """Write the groups that proxies serve from their next look at the file on."""
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
        """Create or change a topic at all brokers, or at *broker*.

        Raises RemotingError, before any change, if one of them does not run: it would come back
        without the topic.
        """
        header = headers.CreateTopicHeader(
            topic=Topic(topic),
            read_queue_nums=queues,
            write_queue_nums=queues if write_queues is None else write_queues,
            perm=6,
        )
        await self._ask_brokers(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_ext(), broker)

    async def delete_topic(self, topic: str, *, broker: str | None = None) -> None:
        """Delete a topic everywhere, or only at *broker*.

        Raises RemotingError, before any change, if one of them does not run: it would come back
        with its queues.
        """
        header = headers.TopicHeader(topic=Topic(topic))
        await self._ask_brokers(RequestCode.DELETE_TOPIC_IN_BROKER, header.to_ext(), broker)
        if broker is None:
            await self.forget_topic(topic)

    async def forget_topic(self, topic: str) -> None:
        """Remove a topic from the nameserver that is deleted at all brokers. Raises
        RemotingError.
        """
        await self.operator.do(self._admin.deletions.forget_topic(Topic(topic)))

    async def define_group(self, group: str) -> None:
        """Configure a consumer group at all brokers. Raises RemotingError as ``make_topic``."""
        body = GroupConfig(group=Group(group), retry_max_times=3).to_json()
        await self._ask_brokers(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, None, body=body
        )

    async def ask_broker(self, name: str, code: RequestCode, ext: dict[str, str]) -> None:
        """Send an operator's request to the master of the broker *name*. Raises RemotingError."""
        await self.operator.do(self._admin.requests.ask(name, code, ext))

    async def _ask_brokers(
        self, code: RequestCode, ext: dict[str, str], broker: str | None, *, body: bytes = b""
    ) -> None:
        names = dict.fromkeys(each.broker_name for each in self.brokers)
        asked = [each for each in names if broker in (None, each)]
        running = {each.broker_name for each in self.brokers if each.runs}
        if away := [each for each in asked if each not in running]:
            raise ConnectionLost(f"not running: {', '.join(away)}")

        async def ask() -> None:
            for each in asked:
                await self._admin.requests.ask(each, code, ext, body=body)

        await self.operator.do(ask())

    async def http(
        self,
        proxy: ProxyNode,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        timeout_s: float = 5,
    ) -> tuple[int, Any]:
        """Send an operator's request to a proxy: status and JSON answer; status 0 without an
        answer.
        """
        return await self.operator.do(_ask(proxy.http, path, body, timeout_s, self.token))

    def close(self) -> None:
        """End all remaining processes and release them."""
        for node in self.nodes.values():
            node.kill()
        self.nemesis.silence()
        self.loop.set_task_factory(None)
        # Tasks of dead processes never end, which asyncio would report for each.
        self.loop.set_exception_handler(lambda *_: None)
        with warnings.catch_warnings():
            # A task that was killed before its first step may hold a coroutine to await.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            for task in self._graves:
                with suppress(BaseException):
                    task.get_coro().close()
            self._graves.clear()


async def _ask(
    address: str, path: str, body: dict[str, Any] | None, timeout_s: float, token: str | None
) -> tuple[int, Any]:
    host, _, port = address.partition(":")
    content = b"" if body is None else orjson.dumps(body)
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {address}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        + ("" if token is None else f"Authorization: Bearer {token}\r\n")
        + "Connection: close\r\n\r\n"
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
    """Create a world, run *play* in it to its end, and return the result.

    *loop_of* creates its event loop from the *seed*.
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
        gc.disable()  # times of collections must not affect the history
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
