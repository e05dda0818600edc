"""Gateways of real processes for tests that kill them: settings, start, verdict."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import orjson

from broker_core.client import BrokerClient
from broker_core.names import Topic
from proxy.history.record import HistoryWriter
from testkit.brokers import Brokers
from testkit.processes import Child, Children, wait_until

RATE = 300  # messages a second
QUEUES = 8

#: Shorter times than the defaults, in the same proportions.
BROKER = "{lock_expiry_s: 2, segment_bytes: 8388608, auto_create_topics: true}"
SETTINGS = """
lock: {renewal_s: 0.3, trust_s: 1.2, broker_lock_expiry_s: 2, request_timeout_s: 0.4}
commit_every_s: 0.3
groups:
  - name: billing
    topics: [{name: orders, order_key: KEY, visibility_timeout_s: 1.5}]
"""
#: Long enough that no lock, trust or lease expires when a busy machine delays processes.
_PATIENT = {
    "timeout_s: 1.5}": "timeout_s: 30}",
    "renewal_s: 0.3, trust_s: 1.2": "renewal_s: 2, trust_s: 8",
    "expiry_s: 2": "expiry_s: 10",
    "request_timeout_s: 0.4": "request_timeout_s: 1",
}
FILES = ("--settings", "settings.yaml", "--broker-settings", "broker.yaml")
HISTORY = ("--history", "history")


@dataclass(frozen=True, slots=True)
class Gateway:
    """The addresses of a gateway's proxies."""

    thrift: list[str]
    http: list[str]

    def queues(self, proxy: int) -> list[dict[str, Any]]:
        """Return a proxy's view of the queues that it owns; an empty list if the proxy is gone."""
        try:
            groups = look(self.http[proxy], "/api/groups")
        except OSError:
            return []
        return [queue for group in groups.values() for queue in group["queues"]]

    def owned(self, proxy: int) -> set[str]:
        return {queue["queue"] for queue in self.queues(proxy)}

    def drained(self, sent: int) -> bool:
        """Return whether every queue is owned and all *sent* messages are read and committed."""
        queues = [queue for proxy in range(len(self.http)) for queue in self.queues(proxy)]
        ends = sum(queue["end"] for queue in queues)
        committed = sum(queue["committed"] for queue in queues)
        return len(queues) == QUEUES and committed == ends >= sent


def look(http: str, path: str) -> Any:
    """GET from a proxy's HTTP port. Raises OSError."""
    with urllib.request.urlopen(f"http://{http}{path}", timeout=5) as answer:
        return orjson.loads(answer.read())


def ask(http: str, path: str, *, method: str = "POST", **asked: Any) -> Any:
    """Send POST, PUT or DELETE to a proxy's HTTP port and return the answer, which must be a
    success.
    """
    body = orjson.dumps({"by": "ada", "reason": "to see what comes of it", **asked})
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{http}{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return orjson.loads(answer.read())
    except HTTPError as error:
        said = error.read().decode()
        raise AssertionError(f"{path} was refused with {error.code}: {said}") from error


def make_patient(folder: Path) -> None:
    """Use the times of ``_PATIENT``, for tests of clean stops. Call before the start."""
    with_times(folder, *_PATIENT.items())


def with_times(folder: Path, *times: tuple[str, str]) -> None:
    """Override times in the settings of proxy and broker. Call before the start."""
    for path in (folder / "settings.yaml", folder / "broker.yaml"):
        text = path.read_text()
        for before, after in times:
            text = text.replace(before, after)
        path.write_text(text)


@contextmanager
def children_in(folder: Path) -> Iterator[Children]:
    """Return child processes that read their settings from *folder*."""
    (folder / "settings.yaml").write_text(SETTINGS)
    (folder / "broker.yaml").write_text(BROKER)
    with Children(folder) as children:
        yield children


def start_up(children: Children, at: dict[str, str] | None = None) -> tuple[Child, dict[str, str]]:
    """Start all servers in one process. *at*: on the ports of an earlier one."""
    ports: list[object] = []
    for name in ("thrift", "http", "nameserver", "broker"):
        ports += [f"--{name}-port", 0 if at is None else at[name].rpartition(":")[2]]
    up = children.start("up", "--data", "data", *FILES, *ports, *HISTORY)
    return up, up.ready()


def kill(children: Children, child: Child) -> None:
    """Send ``kill -9`` and record it in the history: unconfirmed sends through the proxy may be
    stored, and are sent again.
    """
    about = {"what": "kill", "target": str(child.process.pid)}
    history = HistoryWriter(children.folder / "history", f"test-{os.urandom(4).hex()}")
    history.write("nemesis", **about, phase="begin")
    child.kill()
    history.write("nemesis", **about, phase="end")
    history.close()


def verdict(children: Children) -> dict[str, Any]:
    """Return the checker's verdict on all histories, which must be clean."""
    judged = children.run("verify-history", "history", "-o", "json")
    assert judged.code == 0, judged.out + judged.err
    return dict(judged.json)


def events(children: Children, *kinds: str) -> list[dict[str, Any]]:
    """Return the events of these kinds in all histories, by time."""
    files = (children.folder / "history").glob("*.jsonl")
    # The last line of a running process may be incomplete.
    lines = [line for path in files for line in path.read_bytes().split(b"\n")[:-1]]
    found = [event for event in map(orjson.loads, lines) if event["e"] in kinds]
    return sorted(found, key=lambda event: event["t_ns"])


@dataclass(slots=True)
class Site:
    """Nameserver and broker of either kind, with proxies as separate processes."""

    children: Children
    brokers: Brokers
    topic: str = "orders"
    group: str = "billing"
    nameserver: str = ""
    _broker: Child | None = None
    _broker_at: str = "127.0.0.1:0"
    _history: HistoryWriter | None = None

    def start(self) -> None:
        """Start the servers that do not run yet, and create the topic."""
        official = self.brokers.official
        if official is None:
            nameserver = self.children.start("nameserver", "--listen", "127.0.0.1:0", *HISTORY)
            self.nameserver = nameserver.ready()["nameserver"]
            self.start_broker()
        else:
            # Servers are shared with other tests, so the names are unique.
            self.topic, self.group = f"orders-{os.urandom(4).hex()}", f"bills-{os.urandom(4).hex()}"
            self.nameserver = official.nameserver
            folder = self.children.folder
            path = folder / "settings.yaml"
            text = path.read_text().replace("orders", self.topic).replace("billing", self.group)
            path.write_text(text)
            self._history = HistoryWriter(folder / "history", "rocketmq", parts=("rocketmq",))
        asyncio.run(self._create_topic())

    async def _create_topic(self) -> None:
        client = BrokerClient(
            nameservers=[self.nameserver], client_id="test@1#1", request_timeout_s=20
        )
        await client.create_topic(Topic(self.topic), queues=QUEUES)
        await client.close()

    def start_broker(self) -> None:
        """Start the broker; after ``kill_broker`` on the same data and port."""
        if self.brokers.official is not None:
            self.brokers.official.start_broker()
            assert self._history is not None
            self._history.write("start", parts=["rocketmq"])
            return
        listen = ("--listen", self._broker_at, "--broker-settings", "broker.yaml")
        where = ("--nameserver", self.nameserver, *HISTORY)
        self._broker = self.children.start("broker", "--data", "data", *listen, *where)
        self._broker_at = self._broker.ready()["broker"]

    def kill_broker(self) -> None:
        """Send ``kill -9``."""
        if self.brokers.official is not None:
            self.brokers.official.stop_broker(crash=True)
        else:
            assert self._broker is not None
            self._broker.kill()

    def start_proxies(self, count: int, at: Gateway | None = None) -> tuple[list[Child], Gateway]:
        """Start *count* proxies and wait until they are ready. *at*: on ports of earlier ones."""
        proxies = []
        for index in range(count):
            ports = [0, 0] if at is None else [at.thrift[index], at.http[index]]
            thrift, http = (str(port).rpartition(":")[2] for port in ports)
            where = ("--settings", "settings.yaml", "--nameserver", self.nameserver, *HISTORY)
            listen = ("--thrift-port", thrift, "--http-port", http)
            proxies.append(self.children.start("proxy", *where, *listen))
        ready = [proxy.ready() for proxy in proxies]
        return proxies, Gateway(
            [each["thrift"] for each in ready], [each["http"] for each in ready]
        )


@dataclass(slots=True)
class Pair:
    """Two proxies that share the queues, a producer that runs until stopped, and a consumer at each
    proxy.
    """

    proxies: list[Child]
    gateway: Gateway
    producer: Child
    consumers: list[Child]


def start_pair(site: Site) -> Pair:
    """Start two proxies with four queues each, and wait until messages are handled."""
    children = site.children
    proxies, gateway = site.start_proxies(2)
    servers = [",".join(gateway.thrift), ",".join(reversed(gateway.thrift))]
    consume = ("consume", site.group, "--work-ms", 3, *HISTORY)
    consumers = [children.start(*consume, "--proxy", each) for each in servers]
    wait_until(
        lambda: len(gateway.owned(0)) == len(gateway.owned(1)) == QUEUES // 2,
        within_s=60,
        what="four queues each",
    )
    assert not gateway.owned(0) & gateway.owned(1)
    produce = ("produce", site.topic, "--proxy", servers[1], *HISTORY)
    producer = children.start(*produce, "--count", 10**6, "--rate", RATE, "--timeout", 120)
    consumers[0].wait_for(len(consumers[0].out) + 100)
    return Pair(proxies, gateway, producer, consumers)


def finish_pair(site: Site, pair: Pair) -> dict[str, Any]:
    """Stop the producer, let all messages be consumed, and return the checker's verdict."""
    sent = stop_producing(pair)
    wait_until(lambda: pair.gateway.drained(sent), within_s=90, what="everything consumed")
    assert [consumer.terminate() for consumer in pair.consumers] == [0, 0]
    assert [proxy.terminate() for proxy in pair.proxies if proxy.running][-1:] == [0]
    report = verdict(site.children)
    assert (report["acknowledged"], report["lost"]) == (sent, 0)
    return report


def stop_producing(pair: Pair) -> int:
    """Stop the producer and return the number of messages sent."""
    if pair.producer.running:
        pair.producer.terminate()
    assert pair.producer.wait() == 0, pair.producer.err
    return int(pair.producer.ended_with["sent"])
