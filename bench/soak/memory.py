"""``make soak-memory``: 20 minutes of large messages while consumers and proxies join and leave.

Nameserver, broker and two proxies as processes. Clients (``passing_clients``) send messages of 4 MB
and consume them, join and leave, break their connections and do not read their answers; one of them
creates 100,000 topics, of which the broker takes 20,000; one proxy is stopped or killed and started
again, in turn. Whatever happens, the resident memory of a proxy stays below its setting
``limits.memory_bytes`` plus 30 %.

The run fails if it does not, if a message is not handled in every group, if counted memory remains
once everything is handled, if the broker takes another number of topics, or if a process does not
stop cleanly. The result, with all samples of resident memory and processor time, is
``build/soak-memory/report.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.cpu import cpu_s
from bench.frame.progress import Counter
from bench.report import ROOT, write_result
from bench.soak.passing_clients import BULK, GROUPS
from bench.soak.samples import sample
from broker_core.client import BrokerClient
from broker_core.names import Topic
from proxy.cli.output import say
from proxy.errors import OrderlaneError
from testkit.processes import Child, Children, wait_until

_OUT = ROOT / "build" / "soak-memory"
_KEPT = ROOT / "bench" / "results" / "soak-memory.json"
#: Kept samples: no multiple of the number of processes, which are sampled in turn.
_KEPT_EVERY = 10
TOPIC = "large"
_MEGABYTE = 1_000_000
#: Resident memory may exceed the limit of messages by this part of it.
ALLOWANCE = 0.3
#: Topics of the broker and the proxies, at most; they count towards the broker's limit.
_OWN_TOPICS = 100
_SAY_S, _DRAINED_WITHIN_S, _ENDS_WITHIN_S = 15.0, 240.0, 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of a run. *memory_mb*: ``limits.memory_bytes`` of each proxy, in units of 10^6 bytes.
    *backlog*: limit of sent messages that some group has not handled. *topics*: requested ones;
    *max_topics*: the broker's setting.
    """

    seconds: float = 1_200.0
    every_s: float = 1.0
    body_bytes: int = 4_000_000
    memory_mb: int = 512
    backlog: int = 200
    queues: int = 8
    consumers: int = 4
    restart_every_s: float = 30.0
    topics: int = 100_000
    max_topics: int = 20_000
    seed: int = 7

    @property
    def most_resident_mb(self) -> float:
        """The limit that the run checks."""
        return self.memory_mb * (1 + ALLOWANCE)


@dataclass(frozen=True, slots=True)
class MemorySample:
    """One sample of one process: resident memory, processor seconds since its start, and the memory
    that a proxy counts, None if it did not answer or is none.
    """

    process: str
    at_s: float
    resident_mb: float
    cpu_s: float
    counted_mb: float | None


@dataclass(slots=True)
class Outcome:
    """Result of a run. *clients*: their counts; *restarts* of proxies."""

    clients: dict[str, Any]
    samples: list[MemorySample]
    took_s: float
    restarts: int
    left_mb: float
    ends: list[str] = field(default_factory=list)

    def most_mb(self, process: str) -> float:
        """Return the largest resident memory of *process*."""
        return max(
            (each.resident_mb for each in self.samples if each.process == process), default=0
        )


@dataclass(slots=True)
class _Proxy:
    name: str
    child: Child
    thrift: str
    http: str

    def counted_mb(self) -> float | None:
        """Return the memory that it counts; None if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=5) as answer:
                text: str = answer.read().decode()
        except (OSError, urllib.error.URLError):
            return None
        for line in text.splitlines():
            if line.startswith("orderlane_memory_used_bytes "):
                return float(line.split()[1]) / _MEGABYTE
        return None


def run(plan: Plan, folder: Path, *, say: Callable[[str], None]) -> Outcome:
    """Run the whole soak in *folder*. Raises OrderlaneError if it could not run."""
    with Children(folder) as children:
        _write_settings(plan, folder)
        nameserver = children.start("nameserver", "--listen", "127.0.0.1:0")
        address = nameserver.ready()["nameserver"]
        broker = children.start(
            *("broker", "--data", "data", "--listen", "127.0.0.1:0", "--nameserver", address),
            *("--broker-settings", "broker.yaml", "--flush", "async"),
        )
        broker.ready()
        asyncio.run(_make_topic(address, plan.queues))
        proxies = [_start_proxy(children, name, address) for name in ("proxy-1", "proxy-2")]
        counter = folder / "sent.counter"
        clients = children.start_module(
            *("bench.soak.passing_clients", "--topic", TOPIC, "--counter", counter),
            *("--servers", ",".join(proxy.thrift for proxy in proxies)),
            *("--seconds", plan.seconds, "--body-bytes", plan.body_bytes, "--seed", plan.seed),
            *("--backlog", plan.backlog, "--consumers", plan.consumers),
            *("--nameserver", address, "--topics", plan.topics),
        )
        outcome = _watch(
            plan, children, address, proxies, clients, broker, sent=Counter(counter), say=say
        )
        for name, child in (
            *((proxy.name, proxy.child) for proxy in proxies),
            *(("broker", broker), ("nameserver", nameserver)),
        ):
            outcome.ends += _end_of(name, child)
    return outcome


def problems(plan: Plan, outcome: Outcome) -> list[str]:
    """Return sentences about broken promises."""
    found = list(outcome.ends)
    for process in ("proxy-1", "proxy-2"):
        most_mb = outcome.most_mb(process)
        if most_mb > plan.most_resident_mb:
            found.append(
                f"{process}: {most_mb:.0f} MB were resident; {plan.most_resident_mb:.0f} MB are"
                f" allowed for memory_bytes of {plan.memory_mb} MB"
            )
    for group, handled in outcome.clients["handled"].items():
        if handled != outcome.clients["sent"]:
            found.append(
                f"{group}: {outcome.clients['sent']} messages were sent, {handled} handled"
            )
    topics = outcome.clients["topics"]
    least = min(plan.topics, plan.max_topics - _OWN_TOPICS)
    if not least <= topics["created"] <= plan.max_topics:
        found.append(
            f"of {plan.topics} topics {topics['created']} were created: {least} to"
            f" {plan.max_topics} are right"
        )
    if not outcome.clients["fetched_mb"]:
        found.append("the bulk reader fetched nothing")
    if outcome.left_mb:
        found.append(f"{outcome.left_mb:.1f} MB are still counted after the last message")
    return found


def _write_settings(plan: Plan, folder: Path) -> None:
    broker = {
        "retention_bytes": 2 << 30,
        "segment_bytes": 64 << 20,
        "max_topics": plan.max_topics,
    }
    topic = {"name": TOPIC, "order_key": "KEY", "retry_intervals_ms": [200, 1_000]}
    proxy = {
        "limits": {"memory_bytes": plan.memory_mb * _MEGABYTE},
        # consumers come back sooner than by default, and so do queues
        "ownership": {"leave_after_s": 2, "drain_s": 2},
        "groups": [
            {"name": group, "topics": [{**topic, "on_exhausted": "block"}]}
            for group in (*GROUPS, BULK)
        ],
    }
    for name, settings in (("broker", broker), ("proxy", proxy)):
        (folder / f"{name}.yaml").write_bytes(orjson.dumps(settings))  # JSON is YAML


async def _make_topic(nameserver: str, queues: int) -> None:
    client = BrokerClient(nameservers=[nameserver], client_id="soak@1")
    await client.start()
    try:
        await client.create_topic(Topic(TOPIC), queues=queues)
    finally:
        await client.close()


def _start_proxy(
    children: Children, name: str, nameserver: str, *, thrift: str = ":0", http: str = ":0"
) -> _Proxy:
    child = children.start(
        *("proxy", "--settings", "proxy.yaml", "--nameserver", nameserver),
        *("--thrift-port", thrift.rpartition(":")[2], "--http-port", http.rpartition(":")[2]),
    )
    ready = child.ready()
    return _Proxy(name, child, ready["thrift"], ready["http"])


def _watch(
    plan: Plan,
    children: Children,
    nameserver: str,
    proxies: list[_Proxy],
    clients: Child,
    broker: Child,
    *,
    sent: Counter,
    say: Callable[[str], None],
) -> Outcome:
    """Sample, and restart proxies, until the clients have ended."""
    outcome = Outcome({}, [], 0.0, 0, 0.0)
    began_s = time.monotonic()
    restart_s, said_s = plan.restart_every_s, 0.0
    while clients.running:
        at_s = time.monotonic() - began_s
        if at_s > plan.seconds + _DRAINED_WITHIN_S:
            raise OrderlaneError("the clients did not end")
        if not broker.running:
            raise OrderlaneError(f"the broker ended: {broker.err.strip()[-500:]}")
        for proxy in proxies:
            _sample(outcome, proxy.name, proxy.child, at_s, proxy)
        _sample(outcome, "broker", broker, at_s)
        if restart_s <= at_s < plan.seconds:
            restart_s += plan.restart_every_s
            at = outcome.restarts % 2
            # stopped, stopped, killed, killed, and so on: both proxies both ways
            proxies[at] = _restart(
                outcome, children, proxies[at], nameserver, kill=outcome.restarts % 4 >= 2
            )
        if at_s - said_s >= _SAY_S:
            said_s = at_s
            newest = {each.process: each for each in outcome.samples[-3:]}
            figures = ", ".join(
                f"{name} {each.resident_mb:.0f}"
                + ("" if each.counted_mb is None else f" (counted {each.counted_mb:.0f})")
                for name, each in newest.items()
            )
            say(f"{at_s:.0f} s: {sent.value:,} sent; MB resident: {figures}")
        time.sleep(plan.every_s)
    if clients.process.returncode != 0:
        raise OrderlaneError(f"the clients failed: {clients.err.strip()[-500:]}")
    outcome.clients = clients.ended_with
    outcome.took_s = time.monotonic() - began_s
    outcome.left_mb = _left(proxies)
    return outcome


def _sample(
    outcome: Outcome, name: str, child: Child, at_s: float, proxy: _Proxy | None = None
) -> None:
    pid = child.process.pid
    try:
        resident_mb = sample(pid, at_s=at_s).resident_mb
    except OSError:
        outcome.ends.append(f"{name}: ended by itself: {child.err.strip()[-300:]}")
        return
    counted_mb = None if proxy is None else proxy.counted_mb()
    outcome.samples.append(
        MemorySample(name, round(at_s, 1), resident_mb, round(cpu_s(pid), 2), counted_mb)
    )


def _restart(
    outcome: Outcome, children: Children, proxy: _Proxy, nameserver: str, *, kill: bool
) -> _Proxy:
    outcome.restarts += 1
    if kill:
        proxy.child.kill()
    else:
        outcome.ends += _end_of(proxy.name, proxy.child)
    return _start_proxy(children, proxy.name, nameserver, thrift=proxy.thrift, http=proxy.http)


def _left(proxies: list[_Proxy]) -> float:
    """Return the memory still counted some seconds after the last message."""

    def left() -> float:
        return sum(proxy.counted_mb() or 0.0 for proxy in proxies)

    try:
        wait_until(lambda: not left(), within_s=20, what="no memory counted")
    except AssertionError:
        return left()
    return 0.0


def _end_of(name: str, child: Child) -> list[str]:
    """Stop *child*; return a sentence if it did not stop cleanly."""
    try:
        code = child.terminate(within_s=_ENDS_WITHIN_S)
    except TimeoutError:
        return [f"{name}: did not end within {_ENDS_WITHIN_S:g} s"]
    if code != 0 or "Traceback" in child.err:
        return [f"{name}: ended with {code}: {child.err.strip()[-500:]}"]
    return []


def main() -> int:
    options = _options()
    plan = Plan(
        seconds=options.minutes * 60,
        body_bytes=options.body_bytes,
        memory_mb=options.memory_mb,
        backlog=options.backlog,
        consumers=options.consumers,
        topics=options.topics,
        restart_every_s=options.restart_every_s,
        seed=options.seed,
    )
    # Stop the child processes with this one.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    shutil.rmtree(_OUT, ignore_errors=True)
    try:
        outcome = run(plan, _OUT, say=lambda sentence: say(f"soak-memory: {sentence}"))
    except (AssertionError, OrderlaneError) as error:
        say(f"soak-memory did not finish: {error}")
        return 1
    except KeyboardInterrupt:
        say("soak-memory interrupted; all processes were stopped")
        return 130
    finally:
        shutil.rmtree(_OUT / "data", ignore_errors=True)  # gigabytes without information
    found = problems(plan, outcome)
    summary = {
        **outcome.clients,
        "seconds": round(outcome.took_s, 1),
        "restarts": outcome.restarts,
        "most_allowed_mb": plan.most_resident_mb,
        "most_resident_mb": {
            name: outcome.most_mb(name) for name in ("proxy-1", "proxy-2", "broker")
        },
        "problems": found,
    }
    command = "make soak-memory" + (f' ARGS="{" ".join(sys.argv[1:])}"' if sys.argv[1:] else "")
    results = {_OUT / "report.json": outcome.samples}
    if options.keep:
        results[_KEPT] = outcome.samples[::_KEPT_EVERY]
    for path, samples in results.items():
        write_result(
            path,
            "soak-memory",
            command=command,
            options=asdict(plan),
            summary=[summary],
            runs=[asdict(each) for each in samples],
        )
    say(f"soak-memory: {orjson.dumps(summary).decode()}")
    for problem in found:
        say(f"soak-memory: failed: {problem}")
    return 1 if found else 0


def _options() -> argparse.Namespace:
    plan = Plan()
    parser = argparse.ArgumentParser(
        prog="make soak-memory ARGS=",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=plan.seconds / 60)
    parser.add_argument("--body-bytes", type=int, default=plan.body_bytes)
    parser.add_argument(
        "--memory-mb", type=int, default=plan.memory_mb, help="limits.memory_bytes, in MB"
    )
    parser.add_argument(
        "--backlog", type=int, default=plan.backlog, help="limit of sent and unhandled messages"
    )
    parser.add_argument("--consumers", type=int, default=plan.consumers, help="of each group")
    parser.add_argument(
        "--restart-every-s", type=float, default=plan.restart_every_s, help="of one proxy"
    )
    parser.add_argument("--topics", type=int, default=plan.topics, help="created by one client")
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument(
        "--keep",
        action="store_true",
        help="the result with a tenth of the samples as bench/results/soak-memory.json",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
