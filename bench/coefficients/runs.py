"""Small real runs of one proxy and one embedded broker, varying one quantity at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cpu import CpuMeter
from bench.load.stage import Stage, stage
from bench.site import Brokers, ProxyProcess, open_site
from testkit.processes import Child, wait_until

_OWNED = "queue owned"
_QUEUES = 8
_BODY_BYTES = 256

Row = dict[str, float]


@dataclass(frozen=True, slots=True)
class Scope:
    """Sizes of the runs.

    *idle_s*: at least one long poll of a queue, 15 s, to see the cost of an idle queue.
    """

    queues: Sequence[int] = (8, 256, 1024, 4096)
    groups: Sequence[int] = (1, 100, 400, 1000)
    clients: Sequence[int] = (1, 64, 256)
    active: Sequence[int] = (8, 128, 512)
    batches: Sequence[int] = (1, 32, 256)
    messages: int = 200_000
    idle_s: float = 16.0
    requests: int = 5000


SHORT = Scope(
    queues=(8, 256, 1024), groups=(1, 50, 200), clients=(1, 64, 256), active=(8, 64, 256),
    batches=(1, 256), messages=40_000, requests=1000,
)  # fmt: skip
QUICK = Scope(
    queues=(8, 64), groups=(1, 4), clients=(1, 8), active=(8, 32), batches=(1, 256),
    messages=2000, idle_s=0.5, requests=20,
)  # fmt: skip


def idle_queues(brokers: Brokers, folder: Path, scope: Scope) -> list[Row]:
    """Measure idle queues: a topic with *queues* queues, all owned by one proxy."""
    return [_idle(brokers, folder, scope, count, queues=count) for count in scope.queues]


def idle_groups(brokers: Brokers, folder: Path, scope: Scope) -> list[Row]:
    """Measure idle groups on the same eight queues, with one waiting client in each."""
    return [_idle(brokers, folder, scope, count, groups=count) for count in scope.groups]


def waiting_clients(brokers: Brokers, folder: Path, scope: Scope) -> list[Row]:
    """Measure one group with *clients* waiting clients."""
    return [_idle(brokers, folder, scope, count, clients=count) for count in scope.clients]


def _idle(
    brokers: Brokers,
    folder: Path,
    scope: Scope,
    count: int,
    *,
    queues: int = _QUEUES,
    groups: int = 1,
    clients: int = 1,
) -> Row:
    name = f"idle{count}"
    with open_site(brokers, folder / name, name, queues=queues, histories=False) as site:
        place = stage(site)
        proxy = place.proxy({"groups": [place.group(f"g{each}") for each in range(groups)]})
        meter = _meter(brokers, proxy)
        before, began_s = meter.read(), time.monotonic()
        _wait_for_clients(place, proxy, groups=groups, clients=clients)
        _wait_until_owned(proxy, queues * groups)
        owned_s, owned = time.monotonic() - began_s, meter.read()
        settled, settled_s = owned, time.monotonic()
        time.sleep(scope.idle_s)
        idle, idle_s = meter.read(), time.monotonic() - settled_s
        usage = proxy.usage()
        return {
            "count": count,
            "owned_s": owned_s,
            "taking_proxy_ms": (owned["proxy"] - before["proxy"]) * 1e3,
            "taking_broker_ms": (owned["broker"] - before["broker"]) * 1e3,
            "proxy_us": (idle["proxy"] - settled["proxy"]) / idle_s * 1e6,
            "broker_us": (idle["broker"] - settled["broker"]) / idle_s * 1e6,
            "proxy_bytes": usage.resident_bytes,
        }


def active_queues(brokers: Brokers, folder: Path, scope: Scope) -> list[Row]:
    """Measure queues that each get one message per second, so that progress is recorded and
    committed.
    """
    return [_active(brokers, folder, scope, count) for count in scope.active]


def _active(brokers: Brokers, folder: Path, scope: Scope, queues: int) -> Row:
    name = f"a{queues}"
    with open_site(brokers, folder / name, name, queues=queues, histories=False) as site:
        place = stage(site)
        proxy = place.proxy({"groups": [place.group("g0")]})
        _wait_for_clients(place, proxy)
        _wait_until_owned(proxy, queues)
        sender = place.sender(keys=64 * queues, rate=queues, connections=1, batch=1)
        sender.wait_for(queues)
        meter = _meter(brokers, proxy)
        before, began_s = meter.read(), time.monotonic()
        time.sleep(scope.idle_s)
        after, seconds = meter.read(), time.monotonic() - began_s
        sender.end()
        return {
            "count": queues,
            "proxy_us": (after["proxy"] - before["proxy"]) / seconds * 1e6,
            "broker_us": (after["broker"] - before["broker"]) / seconds * 1e6,
        }


def messages(brokers: Brokers, folder: Path, scope: Scope) -> list[Row]:
    """Drain a backlog with *handlers* handlers: processor time per message, and the cost of its
    sends.
    """
    rows = []
    for batch in scope.batches:
        name = f"m{batch}"
        with open_site(brokers, folder / name, name, queues=_QUEUES, histories=False) as site:
            place = stage(site)
            count = scope.messages if batch > 1 else scope.messages // 10
            sending = CpuMeter({"broker": brokers.broker_pid})
            before = sending.read()
            place.preload(count, keys=10_000, body_bytes=_BODY_BYTES)
            sent_us = (sending.read()["broker"] - before["broker"]) / count * 1e6
            proxy = place.proxy({"groups": [place.group()]})
            client = place.client(proxy, concurrency=batch)
            client.wait_for(count // 5)
            meter = _meter(brokers, proxy)
            done, before = client.count, meter.read()
            client.wait_for(count * 4 // 5)
            done, after = client.count - done, meter.read()
            client.child.kill()
            rows.append(
                {
                    "count": batch,
                    "proxy_us": (after["proxy"] - before["proxy"]) / done * 1e6,
                    "broker_us": (after["broker"] - before["broker"]) / done * 1e6,
                    "sent_broker_us": sent_us,
                }
            )
    return rows


def slope(rows: Sequence[Mapping[str, float]], figure: str) -> float:
    """Return the slope of *figure* per additional item, by least squares."""
    xs = [row["count"] for row in rows]
    ys = [row[figure] for row in rows]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    weight = sum((x - middle_x) ** 2 for x in xs)
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / weight


def _meter(brokers: Brokers, proxy: ProxyProcess) -> CpuMeter:
    return CpuMeter({"broker": brokers.broker_pid, "proxy": proxy.child.process.pid})


def _wait_for_clients(
    place: Stage, proxy: ProxyProcess, *, groups: int = 1, clients: int = 1
) -> Child:
    port = proxy.thrift.rpartition(":")[2]
    child = place.site.children.start_module(
        "bench.coefficients.waiting", "--port", port, "--groups", groups, "--each", clients
    )
    child.ready(within_s=60)
    return child


def _wait_until_owned(proxy: ProxyProcess, queues: int) -> None:
    """Wait until the proxy's log reports ownership; requests would add to the measured cost."""
    wait_until(
        lambda: proxy.child.err.count(_OWNED) >= queues,
        within_s=300,
        what=f"{queues} queues owned",
    )


def about(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a rounded value for JSON."""
    return [{name: round(value, 3) for name, value in row.items()} for row in rows]
