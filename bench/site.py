"""Processes of a run: a broker of either kind, proxies, producers and consumers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from bench.cpu import cpu_s
from bench.preload import Backlog, Place
from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.names import Topic
from proxy.errors import OrderlaneError
from proxy.history.check import verify
from proxy.history.findings import Report
from proxy.history.record import HistoryWriter
from testkit.processes import Child, Children, Starter, wait_until
from testkit.rocketmq import VERSIONS, official_cluster
from thin_client import calls
from thin_client.addresses import parse_address
from thin_client.connection import Connection
from thin_client.lease import Lease
from thin_client.servers import Destination
from thrift_idl import consumer

EMBEDDED = "embedded"
KINDS = (EMBEDDED, *VERSIONS)
#: Heap of Apache RocketMQ's broker: larger than the backlogs here.
OFFICIAL_HEAP = "1g"

_SETTINGS = """
lock: {{broker_lock_expiry_s: {expiry_s}}}
groups:
  - name: {group}
    hand_out: {hand_out}
    topics:
      - {{name: {topic}, order_key: {order_key}, on_exhausted: block{more}}}
"""
HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Brokers:
    """A running nameserver and broker."""

    kind: str
    nameserver: str
    lock_expiry_s: float
    broker_pid: int

    def create_topic(self, topic: str, *, queues: int) -> None:
        """Create *topic*."""
        asyncio.run(self._create_topic(Topic(topic), queues))

    async def _create_topic(self, topic: Topic, queues: int) -> None:
        client = BrokerClient(nameservers=[self.nameserver], client_id=f"bench@{os.getpid()}")
        await client.start()
        try:
            await client.create_topic(topic, queues=queues)
        finally:
            await client.close()


@contextmanager
def running_brokers(
    kind: str,
    folder: Path,
    *,
    flush: str = "sync",
    starter: Starter = subprocess.Popen,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Brokers]:
    """Run the embedded nameserver and broker, or a version of Apache RocketMQ, with their own lock
    expiry.

    *environment*: of the embedded broker.
    """
    if kind != EMBEDDED:
        missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
        if missing:
            raise OrderlaneError(
                f"{' and '.join(missing)} not found: Apache RocketMQ needs a JDK of version 17 or"
                " newer, and Maven"
            )
        disk = "ASYNC_FLUSH" if flush == "async" else "SYNC_FLUSH"
        with official_cluster(folder, kind, heap=OFFICIAL_HEAP, flushDiskType=disk) as cluster:
            yield Brokers(kind, cluster.nameserver, cluster.lock_expiry_s, cluster.pids["broker"])
        return
    with Children(folder, starter) as children:
        nameserver = children.start("nameserver", "--listen", "127.0.0.1:0").ready()["nameserver"]
        where = ("--listen", "127.0.0.1:0", "--nameserver", nameserver)
        broker = children.start(
            *("broker", "--data", "data", *where, "--flush", flush), **(environment or {})
        )
        broker.ready()
        yield Brokers(kind, nameserver, 10.0, broker.process.pid)


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a process has used so far."""

    t_s: float
    resident_bytes: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ProxyProcess:
    """A proxy, and access to its metrics."""

    child: Child
    thrift: str
    http: str

    @property
    def node(self) -> str:
        """Its name in histories."""
        return f"proxy-{self.child.process.pid}"

    @property
    def destination(self) -> Destination:
        """The address for clients."""
        return Destination(parse_address(self.thrift))

    def queues(self) -> list[dict[str, Any]]:
        """Return the queues that it owns; empty if it has ended."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/api/groups", timeout=5) as answer:
                groups = orjson.loads(answer.read())
        except OSError:
            return []
        return [queue for group in groups.values() for queue in group["queues"]]

    def usage(self) -> Usage:
        """Return its resident memory and processor time."""
        folder = Path(f"/proc/{self.child.process.pid}")
        pages = int((folder / "statm").read_text().split()[1])
        return Usage(
            t_s=now_ns() / 1e9,
            resident_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
            cpu_s=cpu_s(self.child.process.pid),
        )


class Worker:
    """A consumer (``bench/worker.py``), and its counts so far."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def counts(self) -> dict[str, Any]:
        """Return its last line; zeros before the first."""
        lines = self.child.out
        zeros = {"t_s": 0.0, "others": 0, "stuck": 0, "faults": 0, "repeated": 0}
        return dict(orjson.loads(lines[-1])) if lines else zeros

    def samples(self) -> list[dict[str, Any]]:
        """Return all its lines."""
        return [orjson.loads(line) for line in self.child.out]

    def release(self) -> None:
        """Let the handlers of stuck keys continue."""
        self.child.process.send_signal(signal.SIGUSR1)


@dataclass(slots=True)
class Site:
    """One run: a topic and a group of its own on *brokers*, a folder for logs and histories."""

    brokers: Brokers
    children: Children
    name: str
    queues: int
    topic_settings: str = ""
    histories: bool = True
    order_key: str | None = "KEY"
    hand_out: str = "oldest"

    def start_proxy(self, *, workers: int = 1) -> ProxyProcess:
        """Start a proxy of *workers* processes that serves the group on free ports."""
        settings = self.children.folder / "settings.yaml"
        settings.write_text(
            _SETTINGS.format(
                expiry_s=self.brokers.lock_expiry_s,
                group=self.name,
                hand_out=self.hand_out,
                topic=self.name,
                order_key=self.order_key or "null",
                more=self.topic_settings,
            )
        )
        child = self.children.start(
            *("proxy", "--settings", settings, "--nameserver", self.brokers.nameserver),
            *("--thrift-port", 0, "--http-port", 0, *self.history_options()),
            *(("--workers", workers) if workers > 1 else ()),
        )
        ready = child.ready()
        return ProxyProcess(child, ready["thrift"], ready["http"])

    def start_worker(self, proxies: Sequence[ProxyProcess], *more: object) -> Worker:
        """Start a consumer of the group that uses *proxies*, preferably the first."""
        where = ("--proxy", ",".join(proxy.thrift for proxy in proxies), "--group", self.name)
        module = "bench.worker"
        return Worker(self.children.start_module(module, *where, *more, *self.history_options()))

    def start_producer(self, proxies: Sequence[ProxyProcess], *, rate: float, keys: int) -> Child:
        """Start a producer of *rate* messages per second until SIGTERM."""
        where = ("--proxy", ",".join(proxy.thrift for proxy in proxies))
        load = ("--count", 10**9, "--rate", rate, "--keys", keys)
        return self.children.start("produce", self.name, *where, *load, *self.history_options())

    def wake(self, proxy: ProxyProcess) -> None:
        """Pull once, so that the proxy acquires the group's queues, and wait until it owns all of
        them. Pulled messages are returned unhandled and uncounted.
        """
        with closing(Connection(proxy.destination, timeout_s=10)) as connection:
            request = consumer.PullRequest(
                groupId=self.name, maxBatchSize=1, maxLingerTime=20, clientId="wake"
            )
            answer = connection.call(calls.pull(request), timeout_s=10)
            if answer.messages and answer.context:
                messages = cast("list[Lease]", answer.messages)  # as the client decodes them
                leases = [message.lease_id for message in messages if message.lease_id]
                batch = consumer.AckBatch(context=answer.context, released=leases)
                settle = consumer.AckRequest(groupId=self.name, acks=[batch])
                connection.call(calls.control(settle), timeout_s=10)
        wait_for_queues([proxy], [self.queues])

    def preload(self, backlog: Backlog) -> float:
        """Store *backlog* and return the seconds it took."""
        began = time.monotonic()
        place = Place(self.brokers.nameserver, self.name, self.queues)
        folder = self.children.folder / HISTORY if self.histories else None
        asyncio.run(backlog.store(place, history=folder))
        return time.monotonic() - began

    def verdict(self) -> Report:
        """Return the checker's verdict on the histories. Raises HistoryError."""
        return verify(sorted((self.children.folder / HISTORY).glob("*.jsonl")))

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Yield the events of these kinds in the histories, by time."""
        found = []
        for path in (self.children.folder / HISTORY).glob("*.jsonl"):
            with path.open("rb") as lines:
                events = (orjson.loads(line) for line in lines if line.endswith(b"\n"))
                found += [event for event in events if event["e"] in kinds]
        return sorted(found, key=lambda event: event["t_ns"])

    def history_options(self) -> tuple[object, ...]:
        """Return the options that make a process write a history; empty in runs without."""
        return ("--history", HISTORY) if self.histories else ()


@contextmanager
def open_site(
    brokers: Brokers,
    folder: Path,
    name: str,
    *,
    queues: int,
    histories: bool,
    order_key: str | None = "KEY",
    more: str = "",
    hand_out: str = "oldest",
    starter: Starter = subprocess.Popen,
) -> Iterator[Site]:
    """Open a run named *name*; its processes are killed at the end. *order_key* None: no order.
    *hand_out*: the group's delivery policy.
    """
    brokers.create_topic(name, queues=queues)
    with Children(folder, starter) as children:
        if histories and brokers.kind != EMBEDDED:
            # Notes the kind of broker: Apache's accept commits of former owners.
            HistoryWriter(folder / HISTORY, "rocketmq", parts=("rocketmq",)).close()
        yield Site(brokers, children, name, queues, more, histories, order_key, hand_out)


def wait_for_queues(proxies: Iterable[ProxyProcess], counts: Sequence[int]) -> None:
    """Wait until each of *proxies* owns the given number of queues."""

    def owned() -> list[int]:
        began_s = time.monotonic()
        found = [len(proxy.queues()) for proxy in proxies]
        time.sleep(4 * (time.monotonic() - began_s))  # long lists cost time
        return found

    wait_until(
        lambda: owned() == list(counts),
        within_s=150,
        what=f"{' and '.join(map(str, counts))} queues owned",
    )
