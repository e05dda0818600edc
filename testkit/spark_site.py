"""A gateway of processes, with Spark: the site of the bulk source's tests."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from broker_core.client import BrokerClient, SendReceipt
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.processes import ROOT, Child, Children

T = TypeVar("T")

_BROKER = "{segment_bytes: 8388608, lock_expiry_s: 4}"
_PROXY = """
auto_create_groups: true
commit_every_s: 0.3
lock: {renewal_s: 0.5, trust_s: 2, broker_lock_expiry_s: 4}
"""
_HEAP = "1g"
#: A Java process of a few seconds ends before the optimizing compiler pays off: a quarter less
#: time. Less optimized code needs more stack: without it, a StackOverflowError in Java's regular
#: expressions silently ended a stream on a busy machine.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss8m"


@dataclass(slots=True)
class SparkGateway:
    """Nameserver, broker and one proxy as processes; groups are created on first use.

    All tests share it, so each uses names of its own: ``a_topic`` and ``a_group``.
    """

    children: Children
    nameserver: str = ""
    servers: str = ""
    """Address of the shared proxy, which no test may stop."""
    http: str = ""
    broker: Child = field(init=False)
    broker_address: str = ""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def start(self) -> None:
        """Start all three on free ports."""
        folder = self.children.folder
        (folder / "broker.yaml").write_text(_BROKER)
        (folder / "proxy.yaml").write_text(_PROXY)
        at = ("--listen", "127.0.0.1:0")
        self.nameserver = self.children.start("nameserver", *at).ready()["nameserver"]
        where = ("--nameserver", self.nameserver, "--broker-settings", "broker.yaml")
        self.broker = self.children.start(
            "broker", "--data", "data", "--flush", "async", *at, *where
        )
        self.broker_address = self.broker.ready()["broker"]
        _, ready = self.start_proxy()
        self.servers, self.http = ready["thrift"], ready["http"]

    def start_proxy(self, *, thrift_port: int = 0, settings: str = "") -> tuple[Child, Any]:
        """Start one more proxy and return its ready line (``thrift``, ``http``); *settings*:
        further YAML.
        """
        path = self.children.folder / f"proxy-{next(self._numbers)}.yaml"
        path.write_text(_PROXY + settings)
        ports = ("--thrift-port", thrift_port, "--http-port", 0)
        proxy = self.children.start(
            "proxy", "--settings", path, "--nameserver", self.nameserver, *ports
        )
        return proxy, proxy.ready()

    def a_topic(self, queues: int = 2) -> str:
        """Create a topic with a new name."""
        name = f"orders-{next(self._numbers)}"
        self.create_topic(name, queues)
        return name

    def a_group(self) -> str:
        """Return a name that no other test uses."""
        return f"spark-{next(self._numbers)}"

    def create_topic(self, name: str, queues: int = 2) -> None:
        """Create *name*, or give it more queues."""
        self.ask(lambda client: client.create_topic(Topic(name), queues=queues))

    def send(
        self, topic: str, bodies: Sequence[bytes], *, queue: int | None = None, **fields: Any
    ) -> list[SendReceipt]:
        """Store one message for each of *bodies*: round-robin over the queues, or all in *queue*.

        *fields* as of OutgoingMessage: ``key``, ``tag``, ``properties``.
        """
        messages = [OutgoingMessage(Topic(topic), body, **fields) for body in bodies]
        return self.send_messages(topic, messages, queue=queue)

    def send_messages(
        self, topic: str, messages: Sequence[OutgoingMessage], *, queue: int | None = None
    ) -> list[SendReceipt]:
        """Like ``send``, for complete messages."""

        async def store(client: BrokerClient) -> list[SendReceipt]:
            queues = await client.writable_queues(Topic(topic))
            by_queue: dict[QueueName, list[OutgoingMessage]] = {}
            for number, message in enumerate(messages):
                place = queues[number % len(queues) if queue is None else queue]
                by_queue.setdefault(place, []).append(message)
            receipts = []
            for place, wanted in by_queue.items():
                for start in range(0, len(wanted), 500):
                    receipts += await client.send_batch(place, wanted[start : start + 500])
            return receipts

        return self.ask(store)

    def committed(self, group: str, topic: str) -> dict[str, int | None]:
        """Return the committed offset of *group* at the broker by qid; None: nothing."""

        async def look(client: BrokerClient) -> dict[str, int | None]:
            queues = await client.queues(Topic(topic), fresh=True)
            return {
                queue.qid: await client.committed_offset(Group(group), queue) for queue in queues
            }

        return self.ask(look)

    def ask(self, what: Callable[[BrokerClient], Awaitable[T]]) -> T:
        """Run *what* with a client of the broker."""

        async def asking() -> T:
            client = BrokerClient(nameservers=[self.nameserver], client_id="test@1#1")
            await client.start()
            try:
                return await what(client)
            finally:
                await client.close()

        return asyncio.run(asking())


@contextmanager
def spark_gateway(folder: Path) -> Iterator[SparkGateway]:
    """Run a gateway inside the context."""
    with Children(folder) as children:
        gateway = SparkGateway(children)
        gateway.start()
        yield gateway


def spark_environment() -> dict[str, str]:
    """Return the environment of processes that run Spark: workers use this interpreter and see the
    tests' modules.
    """
    python = sys.executable
    own = {name: text for name, text in os.environ.items() if not name.startswith("ORDERLANE_")}
    return {
        **own,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def spark_settings(folder: Path) -> Mapping[str, str]:
    """Return settings that are small, quiet, on loopback only, with all files in *folder*."""
    return {
        "spark.driver.memory": _HEAP,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder / 'derby'} {SHORT_LIVED}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }


@contextmanager
def spark_session(folder: Path, *, master: str = "local[2]", **more: str) -> Iterator[Any]:
    """Run a session and end its Java process; *more* settings with ``__`` for each dot."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    before = dict(os.environ)
    os.environ.update(spark_environment())
    builder = SparkSession.builder.master(master).appName("orderlane tests")
    for name, value in spark_settings(folder).items():
        builder = builder.config(name, value)
    for name, value in more.items():
        builder = builder.config(name.replace("__", "."), value)
    session = None
    try:
        session = builder.getOrCreate()
        yield session
    finally:
        if session is not None:
            session.stop()
        if (java := SparkContext._gateway) is not None:
            java.shutdown()
            java.proc.stdin.close()  # Spark's launcher ends with it
            java.proc.wait(timeout=30)
            SparkContext._gateway = SparkContext._jvm = None
        os.environ.clear()
        os.environ.update(before)
