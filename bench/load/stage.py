"""A site with lean senders and consumers, as most arms need it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.cpu import CpuMeter, microseconds_each
from bench.frame.context import OrderViolated
from bench.frame.progress import Counter, Stretch
from bench.site import HISTORY, Brokers, ProxyProcess, Site
from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.routes import RouteCache
from broker_core.remoting.route_bodies import MASTER_ID
from proxy.errors import OrderlaneError
from testkit.processes import Child, wait_until

_LOOK_S = 0.01
_LAST_S = 60.0


@dataclass(slots=True)
class Loader:
    """A sender or a consumer, and its progress."""

    child: Child
    counter: Counter
    over: bool = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.child.process.pid

    @property
    def count(self) -> int:
        """Return the number of messages so far."""
        return self.counter.value

    def alive(self) -> bool:
        """Return True; raise OrderlaneError with its output if it ended."""
        if not self.child.running:
            raise OrderlaneError(f"a loader ended early: {self.child.err.strip()[-500:]}")
        return True

    def wait_for(self, messages: int, *, within_s: float = 120.0) -> None:
        """Wait until it has processed *count* messages. Raises OrderlaneError if it ended
        before.
        """

        def done() -> bool:
            return self.count >= messages or not self.alive()

        wait_until(done, within_s=within_s, what=f"{messages} messages")

    def end(self) -> dict[str, Any]:
        """Stop it by SIGTERM if it runs; return its figures. Raises OrderlaneError if it failed."""
        # It has no figures before its start; others may have processed everything meanwhile.
        wait_until(
            lambda: not self.child.running or _catches(self.pid, signal.SIGTERM),
            within_s=_LAST_S,
            what="a loader's begin",
        )
        self.child.process.terminate()
        return self.figures()

    def figures(self, *, within_s: float = _LAST_S) -> dict[str, Any]:
        """Return its figures after it ended by itself. Raises OrderlaneError if it failed."""
        code = self.child.wait(within_s=within_s)
        if code != 0:
            raise OrderlaneError(f"a loader failed: {self.child.err.strip()[-500:]}")
        return self.child.ended_with


@dataclass(slots=True)
class Stage:
    """A site with a load. *broker*: address of its broker, host:port."""

    site: Site
    broker: str
    _loaders: list[Loader] = field(default_factory=list)

    def sender(self, proxy: ProxyProcess | None = None, **options: object) -> Loader:
        """Start ``bench.load.sender``, to the broker itself or through *proxy*."""
        where: dict[str, object] = {"address": self.broker}
        if proxy is not None:
            where = {"address": proxy.thrift, "proxy": True}
        about = {"topic": self.site.name, "queues": self.site.queues}
        return self._start("sender", {**where, **about, **options})

    def puller(self, proxy: ProxyProcess | None = None, **options: object) -> Loader:
        """Start ``bench.load.puller``, at *proxy* or at the broker itself."""
        where: dict[str, object] = {"address": self.broker, "broker": True}
        if proxy is not None:
            where = {"address": proxy.thrift}
        else:
            where |= {"topic": self.site.name, "queues": self.site.queues}
        return self._start("puller", {**where, "group": self.site.name, **options})

    def client(self, proxy: ProxyProcess, **options: object) -> Loader:
        """Start ``bench.load.client``, the Python thin client."""
        where = {"address": proxy.thrift, "group": self.site.name}
        return self._start("client", {**where, **options})

    def proxy(
        self, settings: Mapping[str, Any], *, workers: int = 1, cold: bool = False
    ) -> ProxyProcess:
        """Start a proxy with settings that ``Site.start_proxy`` does not offer.

        *cold*: start it as users do in any shape, since its memory or start is measured.
        """
        path = self.site.children.folder / "settings.yaml"
        lock = {"broker_lock_expiry_s": self.site.brokers.lock_expiry_s}
        path.write_bytes(orjson.dumps({"lock": lock, **settings}))  # JSON is YAML
        children = self.site.children.cold if cold else self.site.children
        child = children.start(
            *("proxy", "--settings", path, "--nameserver", self.site.brokers.nameserver),
            *("--thrift-port", 0, "--http-port", 0),
            *(("--workers", workers) if workers > 1 else ()),
            *(("--history", HISTORY) if self.site.histories else ()),
        )
        ready = child.ready()
        return ProxyProcess(child, ready["thrift"], ready["http"])

    def topic(self, **more: object) -> dict[str, Any]:
        """Return the site's topic, for settings of a group."""
        return {"name": self.site.name, "order_key": "KEY", "on_exhausted": "block", **more}

    def group(self, name: str = "", **more: object) -> dict[str, Any]:
        """Return a group that reads it, by default that of the site."""
        return {"name": name or self.site.name, "topics": [self.topic(**more)]}

    def preload(self, count: int, **options: object) -> None:
        """Store *count* messages at full speed."""
        wanted: dict[str, Any] = {"connections": 8, "batch": 32, **options}
        self.sender(count=count, **wanted).figures(within_s=600)

    def check_log(self, sent: int) -> None:
        """Read the whole topic and check that every sent message is stored once, in the order of
        its key.

        Raises OrderViolated.
        """
        found = self.puller(count=sent, batch=256).figures(within_s=120)
        if found["handled"] != sent or found["faults"] or found["repeated"]:
            raise OrderViolated(f"{sent} messages were sent, but the log contains {found}")

    def _start(self, module: str, options: Mapping[str, object]) -> Loader:
        folder = self.site.children.folder
        counter = folder / f"{module}-{len(self._loaders)}.counter"
        words: list[object] = ["--counter", counter]
        if self.site.histories and not options.get("broker"):
            words += ["--history", HISTORY]
        for name, value in options.items():
            words += _option(name, value)
        loader = Loader(
            self.site.children.start_module(f"bench.load.{module}", *words), Counter(counter)
        )
        self._loaders.append(loader)
        return loader


def _catches(pid: int, which: signal.Signals) -> bool:
    """Return whether a process handles that signal; always True on systems other than Linux."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (which - 1) & 1)


def stage(site: Site) -> Stage:
    """Open a stage on *site*."""
    return Stage(site, asyncio.run(_broker_address(site.brokers)))


def check_order(
    said: Mapping[str, Any], *, shared: bool = False, lapsed: Mapping[str, float] | None = None
) -> None:
    """Raise OrderViolated if a consumer's figures show messages out of order.

    It must be the only consumer of one group, of messages of one sender; otherwise numbers start
    over. *shared*: others take messages of the same keys, so missing ones did not arrive early.
    *lapsed*: the figure of ``lapses``; after a lapse messages may repeat.
    """
    early = 0 if shared else said["faults"]
    again = 0 if lapsed else said["repeated"]
    if early or again:
        raise OrderViolated(f"{early} messages were early, {again} repeated")


def lapses(proxy: ProxyProcess) -> dict[str, float]:
    """Return a figure if locks lapsed, because the machine stalled the proxy or its broker and
    queues stood still; empty otherwise.
    """
    count = proxy.child.err.count("lock granted again after a lapse")
    return {"lapses": count} if count else {}


def wait_until_read(proxy: ProxyProcess, *, within_s: float = 300.0) -> None:
    """Wait until *proxy* has read its queues to their ends."""

    def read() -> bool:
        queues = proxy.queues()
        return bool(queues) and all(each["position"] >= each["end"] for each in queues)

    wait_until(read, within_s=within_s, what="queues read to their ends")


def wait_until_finished(proxy: ProxyProcess, *, within_s: float = 300.0) -> None:
    """Wait until *proxy* has read its queues to their ends, and all of it is finished."""

    def finished() -> bool:
        queues = proxy.queues()
        at_ends = all(each["position"] >= each["end"] for each in queues)
        return bool(queues) and at_ends and not any(each["unfinished"] for each in queues)

    wait_until(finished, within_s=within_s, what="all messages finished")


def timed(count: Callable[[], int], processes: Mapping[str, int], *, seconds: float) -> Stretch:
    """Return the progress during *seconds* from now, and its cost in each of *processes*."""
    meter = CpuMeter(processes)
    done, began_s, before = count(), time.monotonic(), meter.read()
    time.sleep(seconds)
    messages, ended_s, after = count() - done, time.monotonic(), meter.read()
    if not messages:
        raise OrderlaneError(f"no message was processed within {seconds:g} s")
    return Stretch(messages, ended_s - began_s, microseconds_each(before, after, messages))


def _option(name: str, value: object) -> Sequence[object]:
    if value is None or value is False:
        return ()
    word = f"--{name.replace('_', '-')}"
    return (word,) if value is True else (word, value)


async def _broker_address(brokers: Brokers) -> str:
    pool = ConnectionPool()
    try:
        table = await RouteCache([brokers.nameserver], pool, timeout_s=10).clusters()
        (broker,) = table.brokers.values()
        return broker.addresses[MASTER_ID]
    finally:
        await pool.close()
