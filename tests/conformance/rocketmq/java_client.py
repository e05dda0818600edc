"""Apache RocketMQ's own client with our broker: its processes, controlled by commands.

A process (``Driver.java``) holds producers and consumers by name. Its handlers print their events,
which ``JavaClient.seen`` returns. The broker runs in the test's process.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from broker_core.client.broker_client import BrokerClient
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import StoredMessage
from testkit.broker_process import Cluster, run_broker
from testkit.eventually import eventually
from testkit.java import java
from tests.conformance.rocketmq.programs import rocketmq_programs

_ANSWER_S = 60
_REBALANCE = "rocketmq.client.rebalance."

#: Rebalances only on notice, which shows that the broker sends it.
TOLD = {_REBALANCE + "waitInterval": 600_000}
#: Renews locks every 0.5 s and trusts them for 2 s; the client's own values are 20 and 30 s.
#: A queue lost with messages in hand is unlocked after 3 s, not 20.
ORDERLY = {
    _REBALANCE + "waitInterval": 1000,
    _REBALANCE + "lockInterval": 500,
    _REBALANCE + "lockMaxLiveTime": 2000,
    "rocketmq.client.unlockDelayTimeMills": 3000,
}

#: Uses TLS and trusts any certificate, as RocketMQ's documents suggest for a first try. On a busy
#: machine Java's first handshake may take longer than the client waits for a route: it retries.
WITH_TLS = {
    _REBALANCE + "waitInterval": 1000,
    "tls.enable": "true",
    "tls.client.authServer": "false",
}

TOPIC = Topic("orders")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One event of a handler; ``at`` is on the clock of ``broker_core.clock.now_ns``."""

    event: str  # begin or end of handling
    name: str
    at: int
    topic: str
    queue: int
    offset: int
    body: str  # its first 64 bytes
    bytes: int
    tags: str | None = None
    keys: str | None = None
    times: int = 0
    outcome: str | None = None


class JavaError(Exception):
    """A command failed: the client's exception."""


class JavaClient:
    """One process. A thread reads its output, so the broker's event loop is not blocked."""

    def __init__(self, version: str, folder: Path, properties: Mapping[str, int | str]) -> None:
        folder.mkdir(parents=True)
        self._log = folder / "stderr"
        command = java(rocketmq_programs(version), "Driver", heap="200m")
        command[1:1] = [f"-D{name}={value}" for name, value in properties.items()]
        command[1:1] = [f"-Duser.home={folder}"]  # the client's own log
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._commands: IO[bytes] = self.process.stdin
        self._ids = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._seen: list[Seen] = []
        #: Queue and offset of all handled messages, of any topic; for long runs.
        self.handled: set[tuple[int, int]] = set()
        self._reader = threading.Thread(target=self._read, args=[self.process.stdout], daemon=True)
        self._reader.start()

    async def call(self, op: str, name: str = "", **fields: Any) -> Any:
        """Run a command and return its result. Raises JavaError with the client's exception."""
        command = {"id": next(self._ids), "op": op, "name": name, **fields}
        answer = self._waiting[command["id"]] = Future()
        self._commands.write(orjson.dumps(command) + b"\n")
        self._commands.flush()
        async with asyncio.timeout(_ANSWER_S):
            return await asyncio.wrap_future(answer)

    def seen(self, name: str | None = None, event: str = "begin") -> list[Seen]:
        """Return the events of *name*'s handlers (None: of all), in order."""
        return [s for s in self._seen[:] if s.event == event and name in (None, s.name)]

    def bodies(self, name: str | None = None) -> list[str]:
        """Return the bodies of handled messages in order, including repetitions."""
        return [s.body for s in self.seen(name, "end")]

    async def clear(self) -> None:
        """Close all roles and forget their events."""
        await self.call("abandon")
        self._seen.clear()

    def kill(self) -> None:
        """Send ``kill -9``; on return all earlier output has been read."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self._commands.close()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self, output: IO[bytes]) -> None:
        for line in output:
            record = orjson.loads(line)
            if "event" in record:
                self._seen.append(seen := Seen(**record))
                if seen.event == "end":
                    self.handled.add((seen.queue, seen.offset))
                continue
            answer = self._waiting.pop(record["id"])
            if "failure" in record:
                answer.set_exception(JavaError(record["failure"]))
            else:
                answer.set_result(record.get("result"))
        for answer in self._waiting.values():
            answer.set_exception(JavaError(f"it ended: {self._log.read_text()[-2000:]}"))


@dataclass(slots=True)
class JavaClients:
    """The processes of a run of tests, started on demand, killed at the end."""

    folder: Path
    _shared: dict[str, JavaClient] = field(default_factory=dict)
    _all: list[JavaClient] = field(default_factory=list)

    def shared(self, version: str, properties: Mapping[str, int | str]) -> JavaClient:
        """Return the process shared by tests of *version* with these system properties."""
        key = f"{version} {properties}"
        if key not in self._shared or self._shared[key].process.poll() is not None:
            self._shared[key] = self.another(version, properties)
        return self._shared[key]

    def another(self, version: str, properties: Mapping[str, int | str]) -> JavaClient:
        """Start a separate process, for a test that kills it."""
        client = JavaClient(version, self.folder / f"java-{len(self._all)}", properties)
        self._all.append(client)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for client in self._all:
            if client.process.poll() is None:
                client.kill()


@dataclass(slots=True)
class Stage:
    """Our broker, a Java client for it, and a topic of 4 queues, for one test."""

    cluster: Cluster
    java: JavaClient
    ours: BrokerClient
    topic: Topic = TOPIC

    async def start(
        self, kind: str, name: str, *, java: JavaClient | None = None, **fields: Any
    ) -> None:
        """Start a role (producer, push, lite, pull), by default of group ``billing``."""
        where = {"nameserver": self.cluster.nameserver, "broker": self.cluster.broker_name}
        given = {"kind": kind, "group": "billing", "topic": self.topic, **where, **fields}
        await (java or self.java).call("start", name, **given)

    async def send(self, name: str, messages: list[dict[str, Any]], **fields: Any) -> Any:
        """Send messages by producer *name*; return the result of each."""
        given = {"topic": self.topic, "broker": self.cluster.broker_name, **fields}
        return await self.java.call("send", name, messages=messages, **given)

    async def handled(self, count: int, name: str | None = None, *, within_s: float = 30) -> None:
        """Wait until *name* (None: all) has handled this many messages."""
        try:
            await eventually(lambda: len(self.java.bodies(name)) >= count, within_s=within_s)
        except TimeoutError as error:
            got = self.java.bodies(name)
            raise AssertionError(f"{len(got)} of {count} handled: {got[-20:]}") from error

    async def queues_of(self, name: str, *, locked: bool = False) -> list[int]:
        """Return ids of a push consumer's queues, or its locked ones, by its own table."""
        return sorted(
            owned["queue"]
            for owned in await self.java.call("owned", name)
            if owned["topic"] == self.topic
            and not owned["dropped"]
            and (not locked or (owned["locked"] and not owned["expired"]))
        )

    async def stored(self, topic: Topic | None = None) -> list[StoredMessage]:
        """Return all messages of *topic*, queue by queue, as our client reads them."""
        messages: list[StoredMessage] = []
        for queue in await self.ours.queues(topic or self.topic, fresh=True):
            messages += await self._read_all(queue)
        return messages

    async def _read_all(self, queue: QueueName) -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        while True:
            offset = messages[-1].queue_offset + 1 if messages else 0
            pulled = await self.ours.pull(queue, group=Group("r"), offset=offset, suspend_ms=0)
            if not pulled.messages:
                return messages
            messages += pulled.messages


@asynccontextmanager
async def stage(
    java: JavaClient, folder: Path, *, queues: int = 4, **settings: Any
) -> AsyncIterator[Stage]:
    """Run a separate broker for the test; close its roles in *java* at the end."""
    async with run_broker(folder, flush="async", **settings) as cluster:
        opened = Stage(cluster, java, await cluster.client("ours"))
        await cluster.create_topic(opened.topic, queues=queues)
        try:
            yield opened
        finally:
            if java.process.poll() is None:
                await java.clear()
