"""The demo's run: a gateway of its own, the flights sent to it, the same work in two orders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from proxy.cli.demo.children import Child
from proxy.cli.demo.figures import Figures, figures_of
from proxy.cli.demo.flights import FlightEvent
from proxy.errors import OrderlaneError
from proxy.history.record import HistoryWriter
from thin_client import AsyncProducer, Outgoing, new_message_id
from thin_client.delivery import UNIQUE_ID

TOPIC = "flights"
#: The two orders that are compared, by group: what queue-level order gives, and a key's own lane.
GROUPS = {"flights-by-queue": "QID", "flights-by-aircraft": "$.tailnum"}

_BATCH = 500
#: Without any progress for so long the demo gives up.
_STALL_S = 60.0

#: Told how far a step is: its name, done, total.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What to do. ``work_ms`` is how long a handler works on an event."""

    events: Sequence[FlightEvent]
    clients: int = 8
    handlers: int = 8
    work_ms: float = 5.0


async def run_demo(plan: DemoPlan, folder: Path, progress: Progress) -> list[Figures]:
    """Run everything in *folder*; figures of each order. Raises OrderlaneError."""
    keys = len({event.tailnum for event in plan.events if event.tailnum is not None})
    async with AsyncExitStack() as running:
        gateway = await _gateway(folder)
        running.push_async_callback(gateway.stop)
        thrift = str((await gateway.line())["thrift"])
        sends = await _send(plan, thrift, folder / "histories", progress)
        figures = []
        for group, order_key in GROUPS.items():
            histories = folder / "histories" / group
            await _consume(plan, group, thrift, histories, progress)
            figures.append(
                figures_of(order_key, sends=sends, handlers=histories.glob("*.jsonl"), keys=keys)
            )
    return figures


async def _gateway(folder: Path) -> Child:
    settings = {
        "groups": [
            {"name": group, "topics": [{"name": TOPIC, "order_key": order_key}]}
            for group, order_key in GROUPS.items()
        ]
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    ports = ("thrift", "http", "nameserver", "broker")
    return await Child.start(
        "the gateway",
        *("-m", "proxy.cli", "up", "--data", str(folder / "data")),
        *("--settings", str(folder / "settings.yaml")),
        *(word for port in ports for word in (f"--{port}-port", "0")),
        log=folder / "gateway.log",
    )


async def _send(plan: DemoPlan, thrift: str, histories: Path, progress: Progress) -> Path:
    """Send all events in the order of their time; returns the sender's history."""
    history = HistoryWriter(histories, "sender")
    async with AsyncProducer(thrift) as producer:
        for start in range(0, len(plan.events), _BATCH):
            batch = [_outgoing(event) for event in plan.events[start : start + _BATCH]]
            about = [
                {"msg": message.properties[UNIQUE_ID], "topic": TOPIC, "key": message.key}
                for message in batch
            ]
            history.write_many("send", about)
            await producer.send_batch(batch)
            history.write_many("send_ok", about)
            progress("sending", start + len(batch), len(plan.events))
    history.close()
    return history.path


def _outgoing(event: FlightEvent) -> Outgoing:
    return Outgoing(
        TOPIC,
        event.body(),
        key=event.tailnum,
        tag=event.kind,
        properties={UNIQUE_ID: new_message_id()},
    )


async def _consume(
    plan: DemoPlan, group: str, thrift: str, histories: Path, progress: Progress
) -> None:
    """Let the client processes handle everything, once all of them are there."""
    histories.mkdir(parents=True)  # noqa: ASYNC240 - once, and nothing else runs
    clients = [
        await Child.start(
            f"client {number}",
            *("-m", "proxy.cli.demo.worker", "--proxy", thrift, "--group", group),
            *("--history", str(histories), "--number", str(number)),
            *("--handlers", str(plan.handlers), "--work-ms", str(plan.work_ms)),
            log=histories / f"client-{number}.log",
        )
        for number in range(plan.clients)
    ]
    try:
        for client in clients:
            await client.line()
        for client in clients:
            client.go()
        await _finished(plan, clients, f"by {GROUPS[group]}", progress)
    finally:
        await asyncio.gather(*(client.stop() for client in clients))


async def _finished(
    plan: DemoPlan, clients: Sequence[Child], what: str, progress: Progress
) -> None:
    """Wait until the clients have handled as many events as there are."""
    handled = dict.fromkeys(range(len(clients)), 0)
    total = len(plan.events)
    done = asyncio.Event()
    moved = asyncio.Event()

    async def listen(number: int, client: Child) -> None:
        async for line in client.lines():
            handled[number] = line["handled"]
            moved.set()
            progress(what, min(sum(handled.values()), total), total)
            if sum(handled.values()) >= total:
                done.set()
                return

    async def watch() -> None:
        while not done.is_set():
            moved.clear()
            try:
                await asyncio.wait_for(moved.wait(), _STALL_S)
            except TimeoutError:
                count = sum(handled.values())
                raise OrderlaneError(
                    f"nothing moved for {_STALL_S:.0f} s, {count} of {total} events {what}"
                ) from None

    try:
        async with asyncio.TaskGroup() as tasks:
            listening = [tasks.create_task(listen(*each)) for each in enumerate(clients)]
            tasks.create_task(watch())
            await done.wait()
            moved.set()
            for task in listening:
                task.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the first failure says it all
