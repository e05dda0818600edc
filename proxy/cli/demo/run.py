"""Run of the demo: start a gateway, send the flights, and handle them under two order keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from proxy import cli
from proxy.cli.demo.children import Child
from proxy.cli.demo.figures import Figures, figures_of
from proxy.cli.demo.flights import FlightEvent
from proxy.errors import OrderlaneError
from proxy.history.record import HistoryWriter
from thin_client import AsyncProducer, Outgoing, new_message_id
from thin_client.delivery import UNIQUE_ID

TOPIC = "flights"
#: Order keys to compare, by group: one lane per queue, one lane per aircraft.
GROUPS = {"flights-by-queue": "QID", "flights-by-aircraft": "$.tailnum"}

_BATCH = 500
#: Timeout without progress.
_STALL_S = 60.0

#: Progress of a step: name, done, total.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """Size of the demo. ``work_ms`` is the handling time per event."""

    events: Sequence[FlightEvent]
    clients: int = 8
    handlers: int = 8
    work_ms: float = 5.0


async def run_demo(plan: DemoPlan, folder: Path, progress: Progress) -> list[Figures]:
    """Run the demo in *folder* and return the figures per order key. Raises OrderlaneError."""
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
        *("-m", cli.__name__, "up", "--data", str(folder / "data")),
        *("--settings", str(folder / "settings.yaml")),
        *(word for port in ports for word in (f"--{port}-port", "0")),
        log=folder / "gateway.log",
    )


async def _send(plan: DemoPlan, thrift: str, histories: Path, progress: Progress) -> Path:
    """Send all events in order of time; return the path of the sender's history."""
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
    """Start the client processes and let them handle all events together."""
    histories.mkdir(parents=True)  # noqa: ASYNC240 - once, with nothing else running
    clients = [
        await Child.start(
            f"client {number}",
            *("-m", f"{cli.__name__}.demo.worker", "--proxy", thrift, "--group", group),
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
    """Wait until the clients have handled all events."""
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
                    f"no progress for {_STALL_S:.0f} s: {count:,} of {total:,} events {what}"
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
        raise group.exceptions[0] from None  # report the first failure only
