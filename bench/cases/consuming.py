"""A backlog, a proxy, and one client process that consumes all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from bench.frame.context import OrderViolated, RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.frame.progress import Counter, stretch
from bench.handling_record import FIRST, LAST
from bench.peers.backlog import backlog_of
from bench.site import ProxyProcess, Site
from testkit.processes import Child

#: Connections of a lean puller, unless the case sets the number.
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Client:
    """The program that consumes, and its options in addition to the work."""

    module: str
    options: Mapping[str, object]

    def start(self, site: Site, proxy: ProxyProcess, work: Work) -> Child:
        """Start the program."""
        options = {
            "proxy": proxy.thrift,
            "group": site.name,
            "messages": work.messages,
            "counter": "count",
            **self.options,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return site.children.start_module(self.module, *words, *site.history_options())


def lean(*, batch: int, connections: int = CONNECTIONS, max_run: int = 1) -> Client:
    """A program of connections that only pull and ack."""
    options = {"batch": batch, "connections": connections, "max-run": max_run}
    return Client("bench.lean_puller", options)


def plain(work: Work, *, max_run: int = 1, prefetch: int | None = None) -> Client:
    """The Python client with the work's number of handlers; a pull takes *prefetch* more messages,
    by default the rest of the batch.
    """
    more = max(work.batch - work.concurrency, 0) if prefetch is None else prefetch
    options: dict[str, object] = {
        "concurrency": work.concurrency,
        "prefetch": more,
        "max-run": max_run,
        "work-ms": work.work_ms,
        "seed": work.seed,
    }
    if work.least_work_ms is not None:
        options["least-work-ms"] = work.least_work_ms
    return Client("bench.plain_consumer", options)


def consume(
    context: RunContext,
    work: Work,
    client: Client,
    *,
    order_key: str | None = "KEY",
    hand_out: str = "oldest",
    workers: int = 1,
) -> Figures:
    """Run from the backlog to the verdict and return the figures.

    Several *workers* share the queues once clients are connected; a single one owns them before.
    Raises OrderViolated if the order by key or by queue was not kept.
    """
    with (
        context.brokers() as brokers,
        context.site(
            *(brokers, work.topic),
            queues=work.queues,
            order_key=order_key,
            hand_out=hand_out,
        ) as site,
    ):
        site.preload(backlog_of(work))
        proxy = site.start_proxy(workers=workers)
        if workers == 1:
            site.wake(proxy)
        with Counter(site.children.folder / "count") as counter:
            child = client.start(site, proxy, work)
            pids = {
                "client": child.process.pid,
                "proxy": proxy.child.process.pid,
                "broker": brokers.broker_pid,
            }
            part = stretch(
                lambda: counter.value,
                pids,
                work.messages,
                first=FIRST,
                last=LAST,
                alive=lambda: child.running and proxy.child.running,
            )
        said = ended(child)
        proxy.child.terminate(within_s=60)
        if order_key is not None and said["faults"]:
            raise OrderViolated(f"{said['faults']} messages were early or repeated")
        context.judge(site)
        return {**said, **part.cpu_us}


def ended(child: Child) -> dict[str, Any]:
    """Stop a client and return the figures it prints."""
    code = child.terminate(within_s=60)
    assert child.out, f"the client ended with {code}: {child.err[-1000:]}"
    said: dict[str, Any] = orjson.loads(child.out[-1])
    return said
