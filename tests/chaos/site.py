"""The processes of a run and the links between them.

    producer ─┐                        ┌─ nameserver
    client 0 ─┼─ links ─ proxy 0, 1, 2 ┴─ links ─ broker

Producer and clients know a proxy by the address of their own link to it, a proxy knows nameserver
and broker by those of its links: any of them can be cut. The broker registers without one.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from broker_core.client import BrokerClient
from broker_core.names import QueueName, Topic
from proxy.history.record import HistoryWriter
from tests.chaos.links import Link
from tests.chaos.schedule import Times
from tests.chaos.settings import (
    SETTINGS,
    Groups,
    broker_settings_text,
    first_rules,
    settings_text,
)
from tests.chaos.workload import GROUP, SECOND_GROUP, TOPIC
from tests.support.brokers import EMBEDDED
from tests.support.processes import Child, Children
from tests.support.rocketmq import OfficialCluster, official_cluster

QUEUES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is run."""

    broker: str
    """``embedded`` or a version of Apache RocketMQ."""
    seed: int
    times: Times
    broker_expiry_s: float
    """How long an orderly lock really lives on an official broker."""
    on_exhausted: str
    second: str
    """What the second group does with a message that is given up."""
    proxies: int
    clients: tuple[str, ...]
    """The kind of each; with ``@archive``, of the second group."""
    keys: int
    rate: float

    @property
    def policies(self) -> dict[str, str]:
        """``on_exhausted`` of each group that has clients."""
        here = {GROUP: self.on_exhausted, SECOND_GROUP: self.second}
        groups = {group_of(client) for client in self.clients}
        return {group: policy for group, policy in here.items() if group in groups}


def group_of(client: str) -> str:
    """The group of a client as it stands in ``Shape.clients``."""
    return client.partition("@")[2] or GROUP


@dataclass(slots=True)
class Site:
    """Starts the processes, and starts them again. Those methods block: call them in threads."""

    shape: Shape
    folder: Path
    nameserver: str = ""
    proxies: list[Child] = field(default_factory=list)
    clients: list[Child] = field(default_factory=list)
    broker: Child | None = None
    official: OfficialCluster | None = None
    links: dict[str, Link] = field(default_factory=dict)
    _http: list[str] = field(default_factory=list)
    _thrift: list[str] = field(default_factory=list)
    _broker_at: str = ""
    _starts: int = 0
    _exits: ExitStack = field(default_factory=ExitStack)
    _children: Children = field(init=False)
    _broker_history: HistoryWriter | None = None

    @property
    def histories(self) -> Path:
        return self.folder / "history"

    @property
    def cured(self) -> Path:
        """While this file exists no handler fails."""
        return self.folder / "cured"

    # ---- from the first process to the last -----------------------------------------------------

    async def start(self) -> None:
        """Everything, in order."""
        shape = self.shape
        await asyncio.to_thread(self._start_bottom)
        client = BrokerClient(nameservers=[self.nameserver], client_id="chaos@1#1")
        await client.create_topic(Topic(TOPIC), queues=QUEUES)
        await client.close()
        self._thrift, self._http = [""] * shape.proxies, [""] * shape.proxies
        for proxy in range(shape.proxies):
            await self._open(f"proxy {proxy} to broker", lambda: self._broker_at)
            await self._open(f"proxy {proxy} to nameserver", lambda: self.nameserver)
            self._show_broker(proxy)
        for near in ("producer", *(f"client {number}" for number in range(len(shape.clients)))):
            for proxy in range(shape.proxies):
                await self._open(f"{near} to proxy {proxy}", self._proxy_address(proxy))
        self.proxies = list(await self._gather(self.start_proxy, range(shape.proxies)))
        self.clients = list(await self._gather(self.start_client, range(len(shape.clients))))

    async def _gather(self, start: Callable[[int], Child], numbers: range) -> list[Child]:
        return await asyncio.gather(*(asyncio.to_thread(start, number) for number in numbers))

    async def _open(self, name: str, target: Callable[[], str | None]) -> None:
        self.links[name] = Link(name, target)
        await self.links[name].open()

    def _proxy_address(self, proxy: int) -> Callable[[], str | None]:
        return lambda: self._thrift[proxy] or None

    def _start_bottom(self) -> None:
        """Nameserver and broker."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._children = self._exits.enter_context(Children(self.folder))
        shape = self.shape
        self.write_settings(first_rules(shape.times, shape.policies))
        (self.folder / "broker.yaml").write_text(broker_settings_text(shape.times))
        if shape.broker == EMBEDDED:
            listen = ("--listen", "127.0.0.1:0", "--history", "history")
            self.nameserver = self._children.start("nameserver", *listen).ready()["nameserver"]
            self.start_broker()
            return
        self.official = self._exits.enter_context(
            official_cluster(
                *(self.folder / "rocketmq", shape.broker),
                lock_expiry_s=shape.broker_expiry_s,
                autoCreateTopicEnable="false",
            )
        )
        self.nameserver = self.official.nameserver
        self._broker_at = self.official.broker_address
        self._broker_history = HistoryWriter(self.histories, "rocketmq", parts=("rocketmq",))

    def write_settings(self, groups: Groups) -> None:
        """For all proxies, in one step: those that serve read it when they look."""
        new = self.folder / f"{SETTINGS}.new"
        new.write_text(settings_text(self.shape.times, groups))
        new.replace(self.folder / SETTINGS)

    async def close(self) -> None:
        """Kill what still runs."""
        for link in self.links.values():
            await link.close()
        await asyncio.to_thread(self._exits.close)
        if self._broker_history is not None:
            self._broker_history.close()

    # ---- one process ----------------------------------------------------------------------------

    def start_broker(self) -> None:
        """Start it on the data of before; returns once it is registered."""
        if self.official is not None:
            self.official.start_broker()
            assert self._broker_history is not None
            self._broker_history.write("start", parts=["rocketmq"])
            return
        self.broker = self._children.start(
            *("broker", "--data", "data", "--listen", "127.0.0.1:0"),
            *("--broker-settings", "broker.yaml", "--nameserver", self.nameserver),
            *("--history", "history"),
        )
        self._broker_at = self.broker.ready(within_s=60)["broker"]
        for proxy in range(self.shape.proxies):
            self._show_broker(proxy)

    @property
    def embedded(self) -> Child:
        """The broker's process, where it is ours."""
        assert self.broker is not None
        return self.broker

    def stop_broker(self, *, crash: bool) -> None:
        """SIGTERM, or ``kill -9``."""
        if self.official is not None:
            self.official.stop_broker(crash=crash)
        elif crash:
            self.embedded.kill()
        else:
            self.embedded.terminate(within_s=60)

    def pause_broker(self) -> None:
        """SIGSTOP."""
        if self.official is not None:
            self.official.pause_broker()
        else:
            self.embedded.pause()

    def resume_broker(self) -> None:
        """SIGCONT."""
        if self.official is not None:
            self.official.resume_broker()
        else:
            self.embedded.resume()

    def _show_broker(self, proxy: int) -> None:
        """Let *proxy* see its link to the broker where the nameserver says the broker's address."""
        if (link := self.links.get(f"proxy {proxy} to nameserver")) is not None:
            relay = self.links[f"proxy {proxy} to broker"].address
            link.seen_as = {self._broker_at.encode(): relay.encode()}

    def start_proxy(self, number: int) -> Child:
        """A new process behind the links of the old one; returns once it listens."""
        child = self._children.start(
            *("proxy", "--settings", SETTINGS, "--thrift-port", 0, "--http-port", 0),
            *("--nameserver", self.links[f"proxy {number} to nameserver"].address),
            *("--history", "history"),
        )
        at = child.ready(within_s=60)
        self._thrift[number], self._http[number] = at["thrift"], at["http"]
        for name, link in self.links.items():
            if name.endswith(f"to proxy {number}"):
                link.seen_as = {at["thrift"].encode(): link.address.encode()}
        return child

    def start_client(self, number: int) -> Child:
        """A new client. Each proxy has one of its own, so that it always takes part; more roam."""
        self._starts += 1
        client = self.shape.clients[number]
        kind = client.partition("@")[0]
        proxies = 1 if number < self.shape.proxies else self.shape.proxies
        child = self._children.start_module(
            *("tests.chaos.consumer", "--kind", kind, "--group", group_of(client)),
            *("--name", f"{kind}-{number}-{self._starts}"),
            *("--proxies", self._proxies_of(f"client {number}", first=number, of=proxies)),
            *("--history", self.histories, "--cured", self.cured),
        )
        child.ready(within_s=60)
        return child

    def start_producer(self) -> Child:
        """The one producer; its senders take turns in which proxy is the first."""
        shape = self.shape
        child = self._children.start_module(
            *("tests.chaos.producer", "--name", "producer", "--seed", shape.seed),
            *("--proxies", self._proxies_of("producer", first=0, of=shape.proxies)),
            *("--history", self.histories, "--keys", shape.keys, "--rate", shape.rate),
        )
        child.ready(within_s=60)
        return child

    def proxy_node(self, number: int) -> str:
        """What the proxy calls itself in its history."""
        return f"proxy-{self.proxies[number].process.pid}"

    def verify(self) -> dict[str, Any]:
        """What the checker says of all histories."""
        judged = self._children.run("verify-history", "history", "-o", "json", within_s=300)
        if judged.code not in (0, 1):
            return {"violations": 1, "by_id": {}, "failed": judged.err.strip()}
        return dict(judged.json)

    def _proxies_of(self, near: str, *, first: int, of: int) -> str:
        order = [(first + step) % self.shape.proxies for step in range(of)]
        return ",".join(self.links[f"{near} to proxy {proxy}"].address for proxy in order)

    # ---- how far it is --------------------------------------------------------------------------

    async def ends(self) -> dict[str, int]:
        """How many messages each queue holds, from the broker itself."""
        client = BrokerClient(nameservers=[self.nameserver], client_id="chaos@1#2")
        await client.start()
        try:
            queues = [QueueName(Topic(TOPIC), "broker-a", number) for number in range(QUEUES)]
            return {queue.qid: await client.max_offset(queue) for queue in queues}
        finally:
            await client.close()

    def http_of(self, proxy: int) -> str:
        """Where that proxy listens for operators."""
        return self._http[proxy]

    @property
    def https(self) -> list[str]:
        """Where the proxies listen for operators; those that never started are left out."""
        return [http for http in self._http if http]

    def queues(self) -> list[dict[str, Any]]:
        """What the proxies say of the topic's queues that they own, for each group."""
        found: list[dict[str, Any]] = []
        for http in self._http:
            try:
                with urllib.request.urlopen(f"http://{http}/api/groups", timeout=5) as answer:
                    groups = orjson.loads(answer.read())
            except OSError:
                continue
            found += [
                {**queue, "group": name}
                for name, group in groups.items()
                for queue in group["queues"]
            ]
        return [queue for queue in found if queue["topic"] == TOPIC]
