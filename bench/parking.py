"""Cost of parking and redriving many keys at a proxy: ``python -m bench.parking``.

Each key has one message, or ``--messages``. A handler rejects all of them, then one request
redrives all keys and they are handled. Everything runs in the simulated world
(``testkit.simulation``): nameserver, broker, proxy and client, real code in one process. The
proxy's time is the processor time of its own callbacks, without the other processes and the
network. No histories are written.

*Park*: from the client's start until all copies are stored and read; *redrive*: from the request
until no key is parked; *µs each*: both, per message.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from bench.report import ROOT, shown, spread, write_result
from broker_core.client import BrokerClient
from broker_core.names import QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.output import OutputFormat, print_rows
from proxy.core.parking.parking_pipeline import ParkingPipeline
from testkit.simulation.loop import Callback, SimulatedLoop
from testkit.simulation.process import current_process
from testkit.simulation.world import ClientNode, ProxyNode, World, simulate
from thin_client import AsyncConsumer, Message, Reject

_TOPIC, _GROUP, _BROKER, PROXY = "parked", "bench", "broker-a", "proxy-1"
_BATCH, _HANDLERS, _LOOK_S, _MOST_LOOKS = 500, 256, 0.25, 4_000


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of processor time in the proxy's callbacks."""

    keys: int
    park_s: float
    redrive_s: float
    us_each: float


class _MeteredLoop(SimulatedLoop):
    """A loop that sums up the callback time of each process."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.used_ns: Counter[str] = Counter()

    def call_soon(self, callback: Callable[..., object], *args: Any, **named: Any) -> Callback:  # type: ignore[override]
        return super().call_soon(self._metered, callback, *args, **named)

    def call_at_ns(
        self, at_ns: int, callback: Callable[..., object], *args: Any, **named: Any
    ) -> Callback:
        return super().call_at_ns(at_ns, self._metered, callback, *args, **named)

    def _metered(self, callback: Callable[..., object], *args: Any) -> None:
        began_ns = time.process_time_ns()
        try:
            callback(*args)
        finally:
            process = current_process()
            if process is not None:
                self.used_ns[process.name] += time.process_time_ns() - began_ns


class Play:
    """One run; *used* returns the proxy's use so far, in ns or another measure."""

    def __init__(
        self, world: World, used: Callable[[], int], *, keys: int, messages: int, queues: int
    ) -> None:
        self._world, self._used = world, used
        self._keys, self._messages, self._queues = keys, messages, queues
        self._rejects, self._handled = True, 0

    async def run(self) -> Run:
        await self._world.start(
            {_BROKER: {"segment_bytes": 64 << 20, "max_message_bytes": 4 << 20}}
        )
        topic = {"name": _TOPIC, "order_key": "KEY", "max_jobs_in_memory": 40_000}
        self._world.write_settings([{"name": _GROUP, "topics": [topic]}])
        await self._world.make_topic(_TOPIC, self._queues)
        loader = self._world.add(ClientNode, "loader")
        await loader.start()
        await loader.do(self._load())
        proxy = self._world.add(ProxyNode, PROXY)
        await proxy.start()
        proxy.pen.silence()
        began_ns = self._used()
        client = self._world.add(ClientNode, "client")
        await client.start()
        assert client.process is not None
        consumer = client.process.run(
            lambda: AsyncConsumer([proxy.thrift], group=_GROUP, concurrency=_HANDLERS)
        )
        client.work(consumer.run(self._handle, handle_signals=False))
        await self._until(proxy, lambda each: each.twin is not None and self._is_parked(each))
        parked_ns = self._used()
        self._rejects = False
        path = f"/api/groups/{_GROUP}/topics/{_TOPIC}/keys/redrive-all"
        status, answer = await self._world.http(proxy, path, {"reason": "bench"}, timeout_s=60)
        if status != 200:
            raise RuntimeError(f"no key was redriven: {answer}")
        await self._until(proxy, lambda each: not (each.parked or each.parking.leaving))
        if self._handled != self._keys * self._messages:
            raise RuntimeError(f"{self._handled} messages were handled: some are missing")
        ended_ns = self._used()
        return Run(
            self._keys,
            round((parked_ns - began_ns) / 1e9, 4),
            round((ended_ns - parked_ns) / 1e9, 4),
            round((ended_ns - began_ns) / 1e3 / self._keys / self._messages, 2),
        )

    async def _load(self) -> None:
        client = BrokerClient(nameservers=[self._world.nameserver.address], client_id="loader@1#1")
        await client.start()
        for number in range(self._queues):
            keys = range(number, self._keys, self._queues)
            queue = QueueName(Topic(_TOPIC), _BROKER, number)
            messages = [
                OutgoingMessage(topic=queue.topic, body=bytes(100), key=f"key-{key}")
                for _ in range(self._messages)
                for key in keys
            ]
            for at in range(0, len(messages), _BATCH):
                await client.send_batch(queue, messages[at : at + _BATCH])
        await client.close()

    async def _handle(self, _: Message) -> None:
        if self._rejects:
            raise Reject("bench")
        self._handled += 1

    def _is_parked(self, pipeline: ParkingPipeline) -> bool:
        twin = pipeline.twin
        keys = len(range(pipeline.queue.queue_id, self._keys, self._queues))
        return twin is not None and twin.jobs.unfinished >= keys * self._messages

    async def _until(self, proxy: ProxyNode, done: Callable[[ParkingPipeline], bool]) -> None:
        for _ in range(_MOST_LOOKS):
            found = _pipelines(proxy)
            if len(found) == self._queues and all(map(done, found)):
                return
            await asyncio.sleep(_LOOK_S)
        raise RuntimeError("the run did not finish")


def _pipelines(proxy: ProxyNode) -> list[ParkingPipeline]:
    lanes = proxy.proxy.lanes
    return [each for lane in lanes for each in lane.buffer if isinstance(each, ParkingPipeline)]


def one_run(*, keys: int, messages: int, queues: int, seed: int) -> Run:
    """Park and redrive *keys* keys of *messages* messages each."""

    async def play(world: World) -> Run:
        loop = world.loop
        assert isinstance(loop, _MeteredLoop)
        used = partial(loop.used_ns.__getitem__, PROXY)
        return await Play(world, used, keys=keys, messages=messages, queues=queues).run()

    try:
        return simulate(play, seed=seed, loop_of=_MeteredLoop)
    finally:
        gc.collect()


def main(
    keys: Annotated[str, typer.Option(help="numbers of keys, separated by commas")] = (
        "1000,2000,4000,8000,16000"
    ),
    messages: Annotated[int, typer.Option(help="messages per key")] = 1,
    queues: Annotated[int, typer.Option()] = 8,
    rounds: Annotated[int, typer.Option()] = 3,
    seed: Annotated[int, typer.Option()] = 7,
    out: Annotated[Path, typer.Option(help="result file")] = (
        ROOT / "build" / "bench" / "parking-embedded.json"
    ),
) -> None:
    """Run all sizes in turn, round by round."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    sizes = [int(each) for each in keys.split(",")]
    one_run(keys=100, messages=messages, queues=queues, seed=seed)  # imports, and first calls
    runs = [
        one_run(keys=size, messages=messages, queues=queues, seed=seed + number)
        for number in range(rounds)
        for size in sizes
    ]
    summary: list[dict[str, Any]] = [
        {"keys": size, **{name: spread([getattr(run, name) for run in of]) for name in _FIGURES}}
        for size in sizes
        if (of := [run for run in runs if run.keys == size])
    ]
    options = {"keys": sizes, "messages": messages, "queues": queues, "rounds": rounds}
    write_result(
        out,
        "parking",
        command=f"python -m bench.parking --keys {keys} --messages {messages} --queues {queues}"
        f" --rounds {rounds} --seed {seed}",
        options={**options, "seed": seed},
        summary=summary,
        runs=[asdict(run) for run in runs],
    )
    rows = [
        {title: each["keys"] if name == "keys" else shown(each[name]) for title, name in _COLUMNS}
        for each in summary
    ]
    print_rows(rows, columns=[title for title, _ in _COLUMNS], output=OutputFormat.TABLE)


_FIGURES = ("park_s", "redrive_s", "us_each")
_COLUMNS = (
    ("keys", "keys"),
    ("park s", "park_s"),
    ("redrive s", "redrive_s"),
    ("µs each", "us_each"),
)


if __name__ == "__main__":
    typer.run(main)
