"""One soak: start, load with sampling, drain, stop, count."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.frame.progress import Counter
from bench.load.stage import Loader, lapses
from bench.site import ProxyProcess
from bench.soak.judge import Seen
from bench.soak.keys import MOST_DELIVERIES
from bench.soak.samples import Sample, by_process
from broker_core.client import BrokerClient
from broker_core.names import DEAD_LETTER_PREFIX, QueueName, Topic
from proxy.errors import OrderlaneError
from testkit.processes import Child, Children, wait_until
from thin_client import calls
from thin_client.connection import Connection
from thrift_idl import consumer

TOPIC, VISITED = "soak", "visited"
#: Groups: one whose handlers never fail, one whose handlers do, and one of short-lived clients.
STEADY, FAILING, VISITORS = "steady", "failing", "visitors"
QUEUES = 8
_SAY_S = 30.0
_DRAINED_WITHIN_S = 120.0
_ENDS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of a run.

    *seconds*, *messages*: the first one reached ends the load. *backlog*: limit of sent and
    unhandled messages. *log_bytes*: the broker's retention, in addition to its current file of
    *segment_bytes*; retention runs once a minute. The busiest keys may be 5,000 of their messages
    behind, which is 430 MB of log. The default is more than twice that, because a failing key near
    the end of retention is parked, and would wait for an operator.
    """

    seconds: float = 1_200.0
    messages: int = 24_000_000
    every_s: float = 5.0
    warm_s: float | None = None
    keys_alive: int = 5_000
    body_bytes: int = 256
    backlog: int = 20_000
    connections: int = 8
    batch: int = 256
    handlers: int = 64
    log_bytes: int = 1 << 30
    segment_bytes: int = 64 << 20
    flush: str = "sync"
    seed: int = 7

    def warm_until_s(self, took_s: float) -> float:
        """Start of the measurement: after three minutes, or a quarter of the run."""
        return self.warm_s if self.warm_s is not None else max(180.0, took_s / 4)


@dataclass(slots=True)
class Outcome:
    """Result of a run. *samples* by process; *seen*: of all messages."""

    seen: Seen
    samples: dict[str, list[Sample]]
    took_s: float
    keys: int
    visits: int


@dataclass(slots=True)
class _Site:
    """The processes, and their results."""

    plan: Plan
    children: Children
    nameserver: Child
    broker: Child
    proxy: ProxyProcess
    nameserver_address: str
    loaders: dict[str, Loader] = field(default_factory=dict)
    visits: int = 0

    def pids(self) -> dict[str, int]:
        """Return all process ids, by their names in reports."""
        servers = {"broker": self.broker, "proxy": self.proxy.child, "nameserver": self.nameserver}
        return {name: child.process.pid for name, child in servers.items()} | {
            name: loader.pid for name, loader in self.loaders.items()
        }


def run(plan: Plan, folder: Path, *, say: Callable[[str], None]) -> Outcome:
    """Run the whole soak in *folder*. Raises OrderlaneError if it could not run."""
    with Children(folder) as children:
        site = _started(plan, children)
        samples, took_s = _loaded(site, say)
        sent = site.loaders["sender"].figures(within_s=_ENDS_WITHIN_S)
        unfinished = _drained(site, sent["sent"])
        dead_letters = asyncio.run(_count(site.nameserver_address, DEAD_LETTER_PREFIX + FAILING))
        consumers = {name: site.loaders[name].end() for name in (STEADY, FAILING)}
        seen = Seen(
            sent=sent["sent"],
            resent=sent["resent"],
            consumers=consumers,
            lapses=int(lapses(site.proxy).get("lapses", 0)),
            dead_letters=dead_letters,
            unfinished=unfinished,
            ends=_ended(site),
        )
    return Outcome(seen, samples, took_s, sent["keys"], site.visits)


# ---- start to end --------------------------------------------------------------------------------


def _started(plan: Plan, children: Children) -> _Site:
    (children.folder / "broker.yaml").write_bytes(orjson.dumps(_broker_settings(plan)))
    (children.folder / "proxy.yaml").write_bytes(orjson.dumps(_proxy_settings()))  # JSON is YAML
    nameserver = children.start("nameserver", "--listen", "127.0.0.1:0")
    address = nameserver.ready()["nameserver"]
    broker = children.start(
        *("broker", "--data", "data", "--listen", "127.0.0.1:0", "--nameserver", address),
        *("--broker-settings", "broker.yaml", "--flush", plan.flush),
    )
    broker.ready()
    asyncio.run(_make_topics(address))
    child = children.start(
        *("proxy", "--settings", "proxy.yaml", "--nameserver", address),
        *("--thrift-port", 0, "--http-port", 0),
    )
    ready = child.ready()
    proxy = ProxyProcess(child, ready["thrift"], ready["http"])
    site = _Site(plan, children, nameserver, broker, proxy, address)
    _start_loaders(site)
    return site


def _broker_settings(plan: Plan) -> dict[str, Any]:
    return {"retention_bytes": plan.log_bytes, "segment_bytes": plan.segment_bytes}


def _proxy_settings() -> dict[str, Any]:
    # Longer than any stall of a busy machine: a redelivery is then an error.
    topic = {"name": TOPIC, "order_key": "KEY", "visibility_timeout_s": 60}
    failing = {
        "max_deliveries": MOST_DELIVERIES,
        "retry_intervals_ms": [50, 200],
        "on_exhausted": "dead_letter",
    }
    return {
        "groups": [
            {"name": STEADY, "topics": [{**topic, "on_exhausted": "block"}]},
            {"name": FAILING, "topics": [{**topic, **failing}]},
            {"name": VISITORS, "topics": [{"name": VISITED, "order_key": "KEY"}]},
        ]
    }


async def _make_topics(nameserver: str) -> None:
    client = BrokerClient(nameservers=[nameserver], client_id="soak@1")
    await client.start()
    try:
        await client.create_topic(Topic(TOPIC), queues=QUEUES)
        await client.create_topic(Topic(VISITED), queues=1)
    finally:
        await client.close()


def _start_loaders(site: _Site) -> None:
    plan, folder = site.plan, site.children.folder
    for name, more in ((STEADY, ()), (FAILING, ("--client", "--connections", plan.handlers))):
        counter = folder / f"{name}.counter"
        child = site.children.start_module(
            *("bench.soak.consumer", "--address", site.proxy.thrift, "--group", name),
            *("--counter", counter, "--body-bytes", plan.body_bytes, *more),
        )
        site.loaders[name] = Loader(child, Counter(counter))
    counter = folder / "sender.counter"
    child = site.children.start_module(
        *("bench.soak.sender", "--address", site.proxy.thrift, "--topic", TOPIC),
        *("--counter", counter, "--alive", plan.keys_alive, "--body-bytes", plan.body_bytes),
        *("--connections", plan.connections, "--batch", plan.batch, "--backlog", plan.backlog),
        *("--count", plan.messages, "--seconds", plan.seconds, "--seed", plan.seed),
        *(word for name in (STEADY, FAILING) for word in ("--handled", folder / f"{name}.counter")),
    )
    site.loaders["sender"] = Loader(child, Counter(counter))


def _loaded(site: _Site, say: Callable[[str], None]) -> tuple[dict[str, list[Sample]], float]:
    """Sample regularly until the sender has ended; return the samples and the time."""
    samples: dict[str, list[Sample]] = {name: [] for name in site.pids()}
    sender = site.loaders["sender"]
    sender.wait_for(1)
    began_s, said_s, said_count = time.monotonic(), 0.0, 0
    looks = 0
    while True:
        looks += 1
        wait_until_s = began_s + looks * site.plan.every_s
        while sender.child.running and time.monotonic() < wait_until_s:
            time.sleep(min(0.2, max(0.0, wait_until_s - time.monotonic())))
        at_s = time.monotonic() - began_s
        if not sender.child.running:
            return samples, at_s
        for name, child in (("broker", site.broker), ("proxy", site.proxy.child)):
            if not child.running:
                raise OrderlaneError(f"the {name} ended: {child.err.strip()[-500:]}")
        for loader in site.loaders.values():
            if loader is not sender:
                loader.alive()
        _visit(site)
        try:
            for name, found in by_process(site.pids(), at_s=at_s).items():
                samples[name].append(found)
        except OSError:
            continue  # the sender has just ended
        if at_s - said_s >= _SAY_S:
            per_s = (sender.count - said_count) / (at_s - said_s)
            memory = ", ".join(
                f"{name} {each[-1].resident_mb:.0f}" for name, each in samples.items()
            )
            say(f"{at_s:.0f} s: {sender.count:,} sent, {per_s:,.0f}/s; MB: {memory}")
            said_s, said_count = at_s, sender.count


def _visit(site: _Site) -> None:
    """Connect once as a client with a new name, and request an operator's views."""
    site.visits += 1
    with closing(Connection(site.proxy.destination, timeout_s=30)) as connection:
        request = consumer.PullRequest(
            groupId=VISITORS, maxBatchSize=1, maxLingerTime=20, clientId=f"visitor-{site.visits}"
        )
        connection.call(calls.pull(request), timeout_s=30)
    for path in ("metrics", "api/groups"):
        with urllib.request.urlopen(f"http://{site.proxy.http}/{path}", timeout=30) as answer:
            answer.read()


def _drained(site: _Site, sent: int) -> int:
    """Wait until everything is handled and finished; return the number of unfinished messages after
    the limit.
    """

    def left() -> int:
        return sum(queue["unfinished"] for queue in site.proxy.queues())

    def done() -> bool:
        counts = [site.loaders[name].count for name in (STEADY, FAILING)]
        return min(counts) >= sent and not left()

    try:
        wait_until(done, within_s=_DRAINED_WITHIN_S, what="all messages handled and finished")
    except AssertionError:
        return left()
    return 0


async def _count(nameserver: str, topic: str) -> int:
    """Return the number of messages that a topic ever had; 0 if it does not exist."""
    client = BrokerClient(nameservers=[nameserver], client_id="soak@2")
    await client.start()
    try:
        if Topic(topic) not in await client.topics():
            return 0
        queues: list[QueueName] = await client.queues(Topic(topic))
        return sum([await client.max_offset(queue) for queue in queues])
    finally:
        await client.close()


def _ended(site: _Site) -> list[str]:
    """Stop the servers; return sentences about those that did not stop cleanly."""
    found = []
    for name, child in (
        ("proxy", site.proxy.child),
        ("broker", site.broker),
        ("nameserver", site.nameserver),
    ):
        try:
            code = child.terminate(within_s=_ENDS_WITHIN_S)
        except TimeoutError:
            found.append(f"{name}: did not end within {_ENDS_WITHIN_S:g} s")
            continue
        if code != 0:
            found.append(f"{name}: ended with {code}: {child.err.strip()[-300:]}")
        if "Traceback" in child.err:
            found.append(f"{name}: an unexpected error in its log: {child.err.strip()[-300:]}")
    return found
