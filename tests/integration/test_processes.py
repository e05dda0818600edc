"""Whole processes under attack: killed, terminated, stopped; nothing is lost, no key out of order.

``ORDERLANE_KILLS=N`` kills the gateway N times in one run instead of once, ``ORDERLANE_SEED=N``
chooses the moments.
"""

from __future__ import annotations

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


def start_two_proxies(children: Children) -> tuple[list[Child], Gateway]:
    """Nameserver, broker and two proxies, each a process."""
    nameserver = children.start("nameserver", "--listen", "127.0.0.1:0", *HISTORY)
    where = ("--nameserver", nameserver.ready()["nameserver"], *HISTORY)
    listen = ("--listen", "127.0.0.1:0", "--broker-settings", "broker.yaml")
    broker = children.start("broker", "--data", "data", *listen, *where)
    ports = ("--settings", "settings.yaml", "--thrift-port", 0, "--http-port", 0)
    proxies = [children.start("proxy", *ports, *where) for _ in range(2)]
    broker.ready()
    ready = [proxy.ready() for proxy in proxies]
    return proxies, Gateway([at["thrift"] for at in ready], [at["http"] for at in ready])


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False], ids=["SIGTERM", "SIGKILL"])
def test_the_queues_of_a_proxy_that_ends_go_to_the_other(children: Children, clean: bool) -> None:
    """Four queues each, then all eight at one; nothing comes twice if the end was clean."""
    (first, second), gateway = start_two_proxies(children)
    servers = [",".join(gateway.thrift), ",".join(reversed(gateway.thrift))]
    produce = ("produce", "orders", "--proxy", servers[1], *HISTORY)
    assert children.run(*produce, "--count", 1).code == 0
    consume = ("consume", "billing", "--work-ms", 3, *HISTORY)
    consumers = [children.start(*consume, "--proxy", each) for each in servers]
    wait_until(
        lambda: len(gateway.owned(0)) == len(gateway.owned(1)) == QUEUES // 2,
        within_s=30,
        what="four queues each",
    )
    assert not gateway.owned(0) & gateway.owned(1)
    producer = children.start(*produce, "--count", RATE * 4, "--rate", RATE)
    consumers[0].wait_for(len(consumers[0].out) + 100)
    if clean:
        assert first.terminate() == 0
    else:
        first.kill()
    assert producer.running, "the end has to come in the middle"
    wait_until(lambda: len(gateway.owned(1)) == QUEUES, within_s=20, what="all queues at one")
    assert producer.wait() == 0, producer.err
    wait_until(lambda: gateway.drained(RATE * 4 + 1), within_s=30, what="everything consumed")
    assert [consumer.terminate() for consumer in consumers] == [0, 0]
    assert second.terminate() == 0
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (RATE * 4 + 1, 0)
    if clean:
        assert report["duplicates"] == 0
        assert all(event["attempt"] == 1 for event in events(children, "deliver"))


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
