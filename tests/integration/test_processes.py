"""Whole processes under attack: killed, terminated, stopped; nothing is lost, no key out of order.

``ORDERLANE_KILLS=N`` kills the gateway N times in one run instead of once, ``ORDERLANE_SEED=N``
chooses the moments.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.client import BrokerClient
from broker_core.names import Topic
from proxy.history.record import HistoryWriter
from tests.support.brokers import Brokers
from tests.support.processes import Child, Children, wait_until

KILLS = int(os.environ.get("ORDERLANE_KILLS", "1"))
SEED = int(os.environ.get("ORDERLANE_SEED", "7"))
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
FILES = ("--settings", "settings.yaml", "--broker-settings", "broker.yaml")
HISTORY = ("--history", "history")


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a gateway listens: each of its proxies."""

    thrift: list[str]
    http: list[str]

    def queues(self, proxy: int) -> list[dict[str, Any]]:
        """What one of the proxies says of the queues that it owns; nothing if it is gone."""
        try:
            with urllib.request.urlopen(f"http://{self.http[proxy]}/api/groups", timeout=5) as it:
                groups = orjson.loads(it.read())
        except OSError:
            return []
        return [queue for group in groups.values() for queue in group["queues"]]

    def owned(self, proxy: int) -> set[str]:
        return {queue["queue"] for queue in self.queues(proxy)}

    def drained(self, sent: int) -> bool:
        """Every queue is owned, and all of *sent* messages are read and committed."""
        queues = [queue for proxy in range(len(self.http)) for queue in self.queues(proxy)]
        ends = sum(queue["end"] for queue in queues)
        committed = sum(queue["committed"] for queue in queues)
        return len(queues) == QUEUES and committed == ends >= sent


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    (tmp_path / "broker.yaml").write_text(BROKER)
    with Children(tmp_path) as children:
        yield children


def start_up(children: Children, at: dict[str, str] | None = None) -> tuple[Child, dict[str, str]]:
    """All in one process; *at*: on the ports of an earlier one."""
    ports: list[object] = []
    for name in ("thrift", "http", "nameserver", "broker"):
        ports += [f"--{name}-port", 0 if at is None else at[name].rpartition(":")[2]]
    up = children.start("up", "--data", "data", *FILES, *ports, *HISTORY)
    return up, up.ready()


def verdict(children: Children) -> dict[str, Any]:
    """What the checker says of all histories; they have to be clean."""
    judged = children.run("verify-history", "history", "-o", "json")
    assert judged.code == 0, judged.out + judged.err
    return dict(judged.json)


def events(children: Children, *kinds: str) -> list[dict[str, Any]]:
    """Events of these kinds in all histories, by time."""
    files = (children.folder / "history").glob("*.jsonl")
    # A process that is still at it may be in the middle of its last line.
    lines = [line for path in files for line in path.read_bytes().split(b"\n")[:-1]]
    found = [event for event in map(orjson.loads, lines) if event["e"] in kinds]
    return sorted(found, key=lambda event: event["t_ns"])


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * KILLS)
def test_nothing_is_lost_when_everything_is_killed_and_started_again(children: Children) -> None:
    """Producer and consumer go on by themselves, and the joined histories are clean."""
    chooser = random.Random(SEED)
    up, at = start_up(children)
    gateway = Gateway([at["thrift"]], [at["http"]])
    common = ("--proxy", at["thrift"], *HISTORY)
    producer = children.start("produce", "orders", "--count", 10**6, "--rate", RATE, *common)
    consumer = children.start("consume", "billing", "--work-ms", 2, *common)
    for _ in range(KILLS):
        consumer.wait_for(len(consumer.out) + RATE // 2)
        time.sleep(chooser.uniform(0, 2))
        up.kill()
        time.sleep(chooser.uniform(0, 0.5))
        up, _ = start_up(children, at)
    time.sleep(1)
    assert producer.terminate() == 0, producer.err
    sent = producer.ended_with["sent"]
    wait_until(lambda: gateway.drained(sent), within_s=60, what="everything consumed")
    assert consumer.terminate() == 0
    assert up.terminate() == 0
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (sent, 0)
    assert len(consumer.out) >= sent > RATE * KILLS


@dataclass(slots=True)
class Site:
    """Nameserver and broker of either kind, with proxies as processes of their own above them."""

    children: Children
    brokers: Brokers
    topic: str = "orders"
    group: str = "billing"
    nameserver: str = ""
    _broker: Child | None = None
    _broker_at: str = "127.0.0.1:0"
    _history: HistoryWriter | None = None

    def start(self) -> None:
        """Start what is not there yet; the topic comes into being."""
        official = self.brokers.official
        if official is None:
            nameserver = self.children.start("nameserver", "--listen", "127.0.0.1:0", *HISTORY)
            self.nameserver = nameserver.ready()["nameserver"]
            self.start_broker()
        else:
            # Shared with other tests, so the names are this one's own.
            self.topic, self.group = f"orders-{os.urandom(4).hex()}", f"bills-{os.urandom(4).hex()}"
            self.nameserver = official.nameserver
            folder = self.children.folder
            text = SETTINGS.replace("orders", self.topic).replace("billing", self.group)
            (folder / "settings.yaml").write_text(text)
            self._history = HistoryWriter(folder / "history", "rocketmq", parts=("rocketmq",))
        asyncio.run(self._create_topic())

    async def _create_topic(self) -> None:
        client = BrokerClient(nameservers=[self.nameserver], client_id="test@1#1")
        await client.create_topic(Topic(self.topic), queues=QUEUES)
        await client.close()

    def start_broker(self) -> None:
        """Start it, after ``kill_broker`` on the data and port of before."""
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
        """``kill -9``."""
        if self.brokers.official is not None:
            self.brokers.official.stop_broker(crash=True)
        else:
            assert self._broker is not None
            self._broker.kill()

    def start_proxies(self, count: int, at: Gateway | None = None) -> tuple[list[Child], Gateway]:
        """So many proxies, ready; *at*: on the ports of earlier ones."""
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


@pytest.fixture
def site(children: Children, brokers: Brokers) -> Site:
    site = Site(children, brokers)
    site.start()
    return site


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
def test_nothing_is_lost_when_proxy_and_broker_are_killed_and_started_again(site: Site) -> None:
    children = site.children
    (proxy,), gateway = site.start_proxies(1)
    common = ("--proxy", gateway.thrift[0], *HISTORY)
    producer = children.start("produce", site.topic, "--count", 10**6, "--rate", RATE, *common)
    consumer = children.start("consume", site.group, "--work-ms", 2, *common)
    consumer.wait_for(RATE)
    proxy.kill()
    site.kill_broker()
    site.start_broker()
    (proxy,), _ = site.start_proxies(1, gateway)
    consumer.wait_for(len(consumer.out) + RATE)
    assert producer.terminate() == 0, producer.err
    sent = producer.ended_with["sent"]
    wait_until(lambda: gateway.drained(sent), within_s=60, what="everything consumed")
    assert consumer.terminate() == 0
    assert proxy.terminate() == 0
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (sent, 0)


@dataclass(slots=True)
class Pair:
    """Two proxies that share the queues, a producer at work, and a consumer at each proxy."""

    proxies: list[Child]
    gateway: Gateway
    producer: Child
    consumers: list[Child]


def start_pair(site: Site) -> Pair:
    """Four queues each, and work under way."""
    children = site.children
    proxies, gateway = site.start_proxies(2)
    servers = [",".join(gateway.thrift), ",".join(reversed(gateway.thrift))]
    consume = ("consume", site.group, "--work-ms", 3, *HISTORY)
    consumers = [children.start(*consume, "--proxy", each) for each in servers]
    wait_until(
        lambda: len(gateway.owned(0)) == len(gateway.owned(1)) == QUEUES // 2,
        within_s=30,
        what="four queues each",
    )
    assert not gateway.owned(0) & gateway.owned(1)
    produce = ("produce", site.topic, "--proxy", servers[1], *HISTORY)
    producer = children.start(*produce, "--count", RATE * 4, "--rate", RATE)
    consumers[0].wait_for(len(consumers[0].out) + 100)
    return Pair(proxies, gateway, producer, consumers)


def finish_pair(site: Site, pair: Pair) -> dict[str, Any]:
    """The rest is produced and consumed, all ends; what the checker says."""
    assert pair.producer.wait() == 0, pair.producer.err
    wait_until(lambda: pair.gateway.drained(RATE * 4), within_s=60, what="everything consumed")
    assert [consumer.terminate() for consumer in pair.consumers] == [0, 0]
    assert [proxy.terminate() for proxy in pair.proxies if proxy.running][-1:] == [0]
    report = verdict(site.children)
    assert (report["acknowledged"], report["lost"]) == (RATE * 4, 0)
    return report


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
@pytest.mark.parametrize("clean", [True, False], ids=["SIGTERM", "SIGKILL"])
def test_the_queues_of_a_proxy_that_ends_go_to_the_other(site: Site, clean: bool) -> None:
    """Four queues each, then all eight at one; nothing comes twice if the end was clean."""
    pair = start_pair(site)
    if clean:
        assert pair.proxies[0].terminate() == 0
    else:
        pair.proxies[0].kill()
    assert pair.producer.running, "the end has to come in the middle"
    wait_until(lambda: len(pair.gateway.owned(1)) == QUEUES, within_s=30, what="all queues at one")
    report = finish_pair(site, pair)

    if clean:
        assert report["duplicates"] == 0
        assert all(event["attempt"] == 1 for event in events(site.children, "deliver"))


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
def test_a_proxy_that_stood_still_past_its_leases_does_no_harm_when_it_wakes(site: Site) -> None:
    """SIGSTOP for longer than trust, leases and commits last; brokers keep it as a member."""
    pair = start_pair(site)
    sleeper = pair.proxies[0]
    sleeper.pause()
    time.sleep(3)
    sleeper.resume()
    finish_pair(site, pair)


@pytest.mark.slow
@pytest.mark.feature("proxy: kill and take-over")
def test_a_proxy_is_killed_in_the_middle_of_a_change_of_the_order_key(site: Site) -> None:
    """The other one goes on with it: by the rule before below the switch, by the new one above.
    While clients stand still nothing older finishes, so no change is through.
    """
    pair, path = start_pair(site), site.children.folder / "settings.yaml"
    for consumer in pair.consumers:
        consumer.pause()
    path.write_text(path.read_text().replace("order_key: KEY", "order_key: QID"))

    def begun() -> set[str]:
        told = events(site.children, "order_key")
        return {each["queue"] for each in told if not each["through"]} & pair.gateway.owned(0)

    wait_until(begun, within_s=30, what="a change under way")
    pair.proxies[0].kill()
    for consumer in pair.consumers:
        consumer.resume()
    wait_until(lambda: len(pair.gateway.owned(1)) == QUEUES, within_s=30, what="all queues at one")
    finish_pair(site, pair)
    went_on = [each for each in events(site.children, "own+") if each.get("key_since") is not None]

    assert went_on, "the kill has to come in the middle"
    assert any("next_order" in each for each in events(site.children, "deliver"))


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False], ids=["SIGTERM", "SIGKILL"])
def test_what_a_client_held_goes_to_another(children: Children, clean: bool) -> None:
    """A drained client repeats nothing; a killed one what it held, after the lease, in order."""
    _, at = start_up(children)
    common = ("--proxy", at["thrift"], *HISTORY)
    assert children.run("produce", "orders", "--count", 1000, *common).code == 0
    consume = ("consume", "billing", "--work-ms", 10, *common)
    first = children.start(*consume)
    first.wait_for(100)
    if clean:
        assert first.terminate() == 0
    else:
        first.kill()
    second = children.start(*consume, "--until-idle", 3)
    assert second.wait() == 0, second.err
    report = verdict(children)
    again = [event for event in events(children, "deliver") if event["attempt"] > 1]

    assert (report["acknowledged"], report["lost"]) == (1000, 0)
    assert len(events(children, "expire")) == len(again)
    assert (not again) is clean
    assert report["duplicates"] <= len(again)  # handled, and killed before the ack


@pytest.mark.slow
def test_a_stopped_client_loses_its_leases_and_nothing_else(children: Children) -> None:
    """SIGSTOP for longer than a lease: others go on; awake again it does no harm."""
    _, at = start_up(children)
    common = ("--proxy", at["thrift"], *HISTORY)
    assert children.run("produce", "orders", "--count", 1000, *common).code == 0
    consume = ("consume", "billing", "--work-ms", 10, *common)
    sleeper = children.start(*consume)
    sleeper.wait_for(100)
    sleeper.pause()
    assert children.start(*consume, "--until-idle", 3).wait() == 0
    sleeper.resume()
    assert sleeper.terminate() == 0
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (1000, 0)
    assert events(children, "expire")


def test_a_second_sigterm_does_not_wait_for_handlers(children: Children) -> None:
    up, at = start_up(children)
    common = ("--proxy", at["thrift"], *HISTORY)
    assert children.run("produce", "orders", "--count", 8, *common).code == 0
    consumer = children.start("consume", "billing", "--work-ms", 60_000, *common)
    wait_until(lambda: events(children, "handle_start"), within_s=30, what="a handler at work")
    for process in (consumer, up):
        process.process.terminate()
    time.sleep(0.5)
    assert consumer.running, "it should wait for its handler"
    assert up.running, "it should wait for the lease"

    assert up.terminate(within_s=2) == 128 + 15
    assert consumer.terminate(within_s=10) == 0
