"""The processes of a run and the links between them.

    producer ─┐                        ┌─ nameserver
    client 0 ─┼─ links ─ proxy 0, 1, 2 ┴─ links ─ broker

Producer and clients have the address of their own link to a proxy; a proxy has those of its links
to nameserver and broker. Any link can be cut. The broker registers without one.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from broker_core.client import BrokerClient
from broker_core.names import QueueName, Topic
from proxy.errors import OrderlaneError
from testkit.brokers import EMBEDDED
from testkit.processes import Child, Children
from tests.chaos.brokers import EmbeddedBroker, OfficialBroker, Places
from tests.chaos.clients import OTHERS, ClientStart, start_client
from tests.chaos.clocks import Clocks
from tests.chaos.network import Cuttable, Loopback, Network
from tests.chaos.orders import Orders
from tests.chaos.schedule import Times
from tests.chaos.settings import (
    SETTINGS,
    Groups,
    broker_settings_text,
    first_rules,
    settings_text,
)
from tests.chaos.workload import GROUP, SECOND_GROUP, TOPIC

QUEUES = 8
_READY_S = 120
#: Clients that come and go with an additional proxy.
_SPARE_CLIENTS = ("thin", f"thin@{SECOND_GROUP}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The parameters of a run."""

    broker: str
    """``embedded`` or a version of Apache RocketMQ."""
    seed: int
    times: Times
    broker_expiry_s: float
    """The effective expiry of orderly locks on an official broker."""
    on_exhausted: str
    second: str
    """The second group's treatment of exhausted messages."""
    proxies: int
    clients: tuple[str, ...]
    """The kind of each; with ``@archive``, of the second group."""
    keys: int
    rate: float
    spares: int = 0
    """Additional proxies that may join."""
    long: bool = False
    """Whether to use faults that need separate networks, or a broker with a slave."""

    @property
    def policies(self) -> dict[str, str]:
        """``on_exhausted`` of each group with clients."""
        here = {GROUP: self.on_exhausted, SECOND_GROUP: self.second}
        groups = {group_of(client) for client in self.clients}
        return {group: policy for group, policy in here.items() if group in groups}

    @property
    def most_proxies(self) -> int:
        """The number of proxies, including additional ones."""
        return self.proxies + self.spares


def group_of(client: str) -> str:
    """Return the group of a client in ``Shape.clients``."""
    return client.partition("@")[2] or GROUP


def kind_of(client: str) -> str:
    """Return the kind of a client in ``Shape.clients``."""
    return client.partition("@")[0]


@dataclass(slots=True)
class Site:
    """Starts and restarts the processes. Those methods block: call them in threads."""

    shape: Shape
    folder: Path
    network: Network = field(default_factory=Loopback)
    proxies: list[Child] = field(default_factory=list)
    clients: list[Child] = field(default_factory=list)
    links: dict[str, Cuttable] = field(default_factory=dict)
    clocks: Clocks | None = None
    _http: list[str] = field(default_factory=list)
    _thrift: list[str] = field(default_factory=list)
    _starts: int = 0
    _exits: ExitStack = field(default_factory=ExitStack)
    _places: Places = field(init=False)
    _brokers: EmbeddedBroker | OfficialBroker = field(init=False)

    @property
    def histories(self) -> Path:
        return self.folder / "history"

    @property
    def orders(self) -> Orders:
        """The orders for senders and handlers."""
        return Orders(self.folder / "orders")

    @property
    def broker(self) -> EmbeddedBroker | OfficialBroker:
        """The broker, with the nameserver."""
        return self._brokers

    @property
    def embedded(self) -> EmbeddedBroker:
        """The broker, if it is embedded."""
        assert isinstance(self._brokers, EmbeddedBroker)
        return self._brokers

    @property
    def nameserver(self) -> str:
        """The nameserver's address."""
        return self._brokers.nameserver

    # ---- start to end ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything, in order."""
        shape = self.shape
        await asyncio.to_thread(self._start_bottom)
        async with self._client() as client:
            await client.create_topic(Topic(TOPIC), queues=QUEUES)
        proxies = range(shape.most_proxies)
        self._thrift, self._http = [""] * len(proxies), [""] * len(proxies)
        for proxy in proxies:
            await self._open(f"proxy {proxy}", "broker", lambda: self._brokers.address)
            await self._open(f"proxy {proxy}", "nameserver", lambda: self.nameserver)
            self._show_broker(proxy)
        spares = (f"spare {number}" for number in range(shape.spares * len(_SPARE_CLIENTS)))
        clients = (f"client {number}" for number in range(len(shape.clients)))
        for near in ("producer", "storm", *clients, *spares):
            for proxy in proxies:
                await self._open(near, f"proxy {proxy}", self._proxy_address(proxy))
        self.proxies = list(await self._gather(self.start_proxy, range(shape.proxies)))
        self.clients = list(await self._gather(self.start_client, range(len(shape.clients))))

    async def _gather(self, start: Callable[[int], Child], numbers: range) -> list[Child]:
        return await asyncio.gather(*(asyncio.to_thread(start, number) for number in numbers))

    async def _open(self, near: str, far: str, target: Callable[[], str | None]) -> None:
        self.links[f"{near} to {far}"] = await self.network.link(near, far, target)

    def _proxy_address(self, proxy: int) -> Callable[[], str | None]:
        return lambda: self._thrift[proxy] or None

    def _start_bottom(self) -> None:
        """Start nameserver and broker."""
        self.folder.mkdir(parents=True, exist_ok=True)
        children = self._exits.enter_context(Children(self.folder))
        shape = self.shape
        if shape.long:
            self.clocks = Clocks.open(self.folder / "clocks")
        self._places = Places(self.network, self.clocks, children)
        self.write_settings(first_rules(shape.times, shape.policies))
        text = broker_settings_text(shape.times, small=shape.long)
        (self.folder / "broker.yaml").write_text(text)
        apart = shape.long and not isinstance(self.network, Loopback)
        if shape.broker == EMBEDDED:
            self._brokers = EmbeddedBroker(
                self.folder, self._places, self._show_broker_to_all, small_disk=apart
            )
        else:
            self._brokers = OfficialBroker(
                *(self.folder, self._places, shape.broker, shape.broker_expiry_s),
                replicated=shape.long,
            )
        self._brokers.start(self._exits)

    def write_settings(self, groups: Groups) -> None:
        """Write them for all proxies, atomically: running proxies reread the file."""
        new = self.folder / f"{SETTINGS}.new"
        new.write_text(settings_text(self.shape.times, groups))
        new.replace(self.folder / SETTINGS)

    async def close(self) -> None:
        """Kill all remaining processes."""
        for link in self.links.values():
            await link.close()
        await asyncio.to_thread(self._exits.close)

    # ---- one process ----------------------------------------------------------------------------

    def _show_broker_to_all(self) -> None:
        for proxy in range(self.shape.most_proxies):
            self._show_broker(proxy)

    def _show_broker(self, proxy: int) -> None:
        """Replace the broker's address, as given by the nameserver, with *proxy*'s link to it."""
        if (link := self.links.get(f"proxy {proxy} to nameserver")) is not None:
            relay = self.links[f"proxy {proxy} to broker"].address
            link.show({self._brokers.address.encode(): relay.encode()})

    def start_proxy(self, number: int) -> Child:
        """Start a process behind the links of the old one; returns once it listens."""
        host, network = f"proxy {number}", self.network
        address = network.address(host)
        child = self._places.on(host).start(
            *("proxy", "--settings", SETTINGS, "--history", "history"),
            *("--nameserver", self.links[f"{host} to nameserver"].address),
            ORDERLANE_LISTEN__THRIFT=f"{address}:{network.port(9713)}",
            ORDERLANE_LISTEN__HTTP=f"127.0.0.1:{network.port(9714 + 10 * number)}",
        )
        at = child.ready(within_s=_READY_S)
        self._thrift[number], self._http[number] = at["thrift"], at["http"]
        for name, link in self.links.items():
            if name.endswith(f"to {host}"):
                link.show({at["thrift"].encode(): link.address.encode()})
        return child

    def start_client(self, number: int) -> Child:
        """Start a client. Each proxy has a client of its own, so that it is always used; others
        roam.
        """
        roams = number >= self.shape.proxies
        proxies = self._proxies_of(
            f"client {number}", first=number, of=self.shape.most_proxies if roams else 1
        )
        return self._start_client(self.shape.clients[number], f"client {number}", proxies)

    def _start_client(self, client: str, host: str, proxies: list[str]) -> Child:
        self._starts += 1
        kind, number = kind_of(client), host.rpartition(" ")[2]
        number = number if host.startswith("client") else f"s{number}"
        start = ClientStart(
            kind=kind,
            group=group_of(client),
            name=f"{kind}-{number}-{self._starts}",
            proxies=proxies,
            histories=self.histories,
            orders=self.folder / "orders",
            slow_s=0.8 * self.shape.times.lease_s,
        )
        return start_client(self._places.on(host), start, cured=self.orders.all_cured)

    def start_spare(self, number: int) -> list[Child]:
        """Start additional proxy *number*, and clients that use only it."""
        proxy = self.start_proxy(number)
        self.proxies.append(proxy)
        first = (number - self.shape.proxies) * len(_SPARE_CLIENTS)
        hosts = (f"spare {first + each}" for each in range(len(_SPARE_CLIENTS)))
        return [
            self._start_client(client, host, [self._address_of(host, number)])
            for client, host in zip(_SPARE_CLIENTS, hosts, strict=True)
        ]

    def spare_ended(self, number: int) -> None:
        """Forget the ended proxy."""
        self._thrift[number] = self._http[number] = ""
        del self.proxies[number]

    def start_producer(self) -> Child:
        """Start the only producer; its senders start with different proxies."""
        shape = self.shape
        proxies = self._proxies_of("producer", first=0, of=shape.proxies)
        child = self._places.on("producer").start_module(
            *("tests.chaos.producer", "--name", "producer", "--seed", shape.seed),
            *("--proxies", ",".join(proxies), "--orders", self.folder / "orders"),
            *("--history", self.histories, "--keys", shape.keys, "--rate", shape.rate),
        )
        child.ready(within_s=_READY_S)
        return child

    def start_storm(self) -> Child:
        """Start a client that repeats acks, and acks leases that never existed."""
        self._starts += 1
        proxies = self._proxies_of("storm", first=0, of=self.shape.proxies)
        child = self._places.on("storm").start_module(
            *("tests.chaos.storm", "--name", f"storm-0-{self._starts}", "--group", GROUP),
            *("--proxies", ",".join(proxies), "--history", self.histories),
        )
        child.ready(within_s=_READY_S)
        return child

    def start_watch(self) -> Child:
        """Start the checker that runs during the attack."""
        return self._places.children.start_module("tests.chaos.watch", self.histories)

    @property
    def slowable(self) -> list[int]:
        """Return the clients whose handlers can be made slow."""
        kinds = map(kind_of, self.shape.clients)
        return [number for number, kind in enumerate(kinds) if kind not in OTHERS]

    def proxy_node(self, number: int) -> str:
        """Return the proxy's name in its history."""
        return f"proxy-{self.proxies[number].process.pid}"

    def verify(self) -> dict[str, Any]:
        """Return the checker's verdict on all histories."""
        run = self._places.children.run
        judged = run("verify-history", "history", "-o", "json", within_s=1800)
        if judged.code not in (0, 1):
            return {"violations": 1, "by_id": {}, "failed": judged.err.strip()}
        return dict(judged.json)

    def _proxies_of(self, near: str, *, first: int, of: int) -> list[str]:
        """Return *of* proxies, from *first* on; additional ones come last."""
        here, most = self.shape.proxies, self.shape.most_proxies
        order = [*((first + step) % here for step in range(here)), *range(here, most)]
        return [self._address_of(near, proxy) for proxy in order[:of]]

    def _address_of(self, near: str, proxy: int) -> str:
        """Return the address of that proxy for *near*; it need not be running."""
        fixed = self.network.port(9713)
        if fixed:
            return f"{self.network.address(f'proxy {proxy}')}:{fixed}"
        return self.links[f"{near} to proxy {proxy}"].address

    # ---- progress -------------------------------------------------------------------------------

    async def ends(self) -> dict[str, int]:
        """Return the number of messages in each queue, from the broker. Raises RemotingError."""
        async with self._client() as client:
            queues = [QueueName(Topic(TOPIC), "broker-a", number) for number in range(QUEUES)]
            return {queue.qid: await client.max_offset(queue) for queue in queues}

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[BrokerClient]:
        """Connect directly to the broker, with long timeouts."""
        client = BrokerClient(
            nameservers=[self.nameserver], client_id="chaos@1#1", request_timeout_s=_READY_S
        )
        await client.start()
        try:
            yield client
        finally:
            await client.close()

    def http_of(self, proxy: int) -> str:
        """Return the proxy's operator address; empty if it is not running."""
        return self._http[proxy]

    def visit(self, http: str) -> AbstractContextManager[None]:
        """Enter the network of that proxy, whose operator address is on its loopback, in this
        thread. Raises OrderlaneError if the proxy has left since.
        """
        if http not in self._http:
            raise OrderlaneError(f"no proxy listens at {http} any more")
        return self.network.visit(f"proxy {self._http.index(http)}")

    @property
    def https(self) -> list[str]:
        """Return the operator addresses of the proxies, without those that never started."""
        return [http for http in self._http if http]

    def queues(self) -> list[dict[str, Any]]:
        """Return the proxies' reports on the queues they own, for each group."""
        found: list[dict[str, Any]] = []
        for http in self.https:
            url = f"http://{http}/api/groups"
            try:
                with self.visit(http), urllib.request.urlopen(url, timeout=5) as answer:
                    groups = orjson.loads(answer.read())
            except OSError:
                continue
            found += [
                {**queue, "group": name}
                for name, group in groups.items()
                for queue in group["queues"]
            ]
        return [queue for queue in found if queue["topic"] == TOPIC]
