"""Clients of the memory soak: ``python -m bench.soak.passing_clients``.

Sends large messages through all proxies while consumers join and leave, cleanly or by breaking
their connections, sometimes in the middle of an answer. Some handlers fail, so that messages wait
for their retry. A bulk reader fetches stored records meanwhile, and another client creates topics.
After ``--seconds`` it stops sending, consumes until every message was handled in every group, and
prints its counts as one line of JSON.
"""

from __future__ import annotations

import asyncio
import random
import signal
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from bench.frame.progress import Counter
from bench.soak.topic_flood import TopicFlood
from broker_core.clock import now_ns
from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.output import print_json
from proxy.observe.logs import configure_logs
from thin_client import (
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Message,
    Outgoing,
    Retry,
    SendFailed,
)
from thin_client import calls as client_calls
from thin_client.aio_connection import AsyncConnection
from thin_client.servers import Servers
from thrift_idl import consumer

#: Groups whose consumers join and leave.
GROUPS = ("first", "second")
#: Group of the bulk reader.
BULK = "bulk"
_NUMBER = struct.Struct(">q")
_LIVES_S = (1.0, 8.0)
_AWAY_S = (0.0, 4.0)
_HANDLING_S = (0.0, 0.2)
#: Fraction of handlers that fail, of consumers that break their connection, and of these that do
#: so without reading an answer.
_FAILING, _BREAKING, _UNREAD = 0.05, 0.4, 0.3
_AT_A_TIME = 4
#: Seconds after which the bulk reader begins again.
_REREAD_S = 20.0
_LOOK_S = 0.05
_DRAINS_S = 120.0


@dataclass(slots=True)
class _Load:
    """The load and its counts. ``handled``: numbers of the handled messages, by group."""

    servers: list[str]
    topic: str
    body_bytes: int
    keys: int
    backlog: int
    random: random.Random
    counter: Counter
    sent: int = 0
    joins: int = 0
    fetched_bytes: int = 0
    deliveries: int = 0
    handled: dict[str, set[int]] = field(default_factory=lambda: {each: set() for each in GROUPS})
    stopped: bool = False
    _oldest: int = 0

    @property
    def oldest(self) -> int:
        """Number of the oldest message that a group has not handled; of the next one if all are."""
        while self._oldest < self.sent and all(
            self._oldest in each for each in self.handled.values()
        ):
            self._oldest += 1
        return self._oldest

    def _any_order(self) -> list[str]:
        """Return the proxies in another order each time: a client begins with the first one."""
        return self.random.sample(self.servers, len(self.servers))

    async def send(self, number: int, senders: int) -> None:
        """Send the messages of one sender of *senders*, one at a time."""
        filler = self.random.randbytes(self.body_bytes - _NUMBER.size)
        async with AsyncProducer(self._any_order(), timeout_s=60) as producer:
            while not self.stopped:
                # Counted from the oldest one, so that retention deletes no unread message.
                if self.sent - self.oldest >= self.backlog:
                    await asyncio.sleep(_LOOK_S)
                    continue
                mine, self.sent = self.sent, self.sent + 1
                key = f"key-{mine % (self.keys // senders) * senders + number}"
                message = Outgoing(self.topic, _NUMBER.pack(mine) + filler, key)
                while not await _is_stored(producer, message):
                    pass
                self.counter.show(self.sent)

    async def consume(self, group: str) -> None:
        """Join and leave until cancelled, with pauses."""
        while True:
            self.joins += 1
            lives_s = self.random.uniform(*_LIVES_S)
            breaks = not self.stopped and self.random.random() < _BREAKING
            if breaks and self.random.random() < _UNREAD:
                await self._ask_and_break(group, lives_s)
            else:
                await self._join(group, lives_s, breaks=breaks)
            if not self.stopped:
                await asyncio.sleep(self.random.uniform(*_AWAY_S))

    async def _join(self, group: str, lives_s: float, *, breaks: bool) -> None:
        client = AsyncConsumer(self._any_order(), group=group, concurrency=_AT_A_TIME)

        async def handle(message: Message) -> None:
            self.deliveries += 1
            (number,) = _NUMBER.unpack_from(message.body)
            await asyncio.sleep(self.random.uniform(*_HANDLING_S))
            if self.random.random() < _FAILING:
                raise Retry
            self.handled[group].add(number)

        running = spawn(client.run(handle, handle_signals=False), name=f"consumer {self.joins}")
        try:
            await asyncio.wait([running], timeout=lives_s)
            if breaks:
                running.cancel()
                await asyncio.sleep(0)
                running.cancel()
            else:
                client.stop()
            await asyncio.wait([running])
            if not running.cancelled() and isinstance(running.exception(), ClientError):
                await asyncio.sleep(_LOOK_S)
        finally:
            await cancel_and_wait(running)

    async def _ask_and_break(self, group: str, lives_s: float) -> None:
        """Pull, and break the connection without reading the answer."""
        host, _, port = self.random.choice(self.servers).rpartition(":")
        request = consumer.PullRequest(
            groupId=group,
            maxBatchSize=_AT_A_TIME,
            maxLingerTime=1_000,
            clientId=f"deaf-{self.joins}",
        )
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            writer.write(client_calls.pull(request).encode(1))
            await asyncio.sleep(min(lives_s, 2.0))
            writer.transport.abort()

    async def fetch(self) -> None:
        """Read the topic in bulk, from its first message, again and again."""
        offsets: dict[str, int] = {}
        begin_s = 0.0
        loop = asyncio.get_running_loop()
        while True:
            if loop.time() >= begin_s:
                offsets, begin_s = {}, loop.time() + _REREAD_S
            request = consumer.FetchRequest(
                groupId=BULK,
                cluster="",
                consumerId="bulk",
                fetchOffset={self.topic: offsets} if offsets else None,
                maxBatchSize=16,
                maxLingerTime=500,
                format=1,
            )
            servers = Servers(self._any_order(), tls=None)
            try:
                connection = await AsyncConnection.open(servers.destination, timeout_s=5)
                try:
                    answer = await connection.call(client_calls.fetch(request), timeout_s=30)
                finally:
                    connection.close()
            except ClientError:
                offsets = {}
            else:
                results: list[Any] = answer.results or []
                self.fetched_bytes += sum(len(each.records or b"") for each in results)
                offsets = {each.qid: each.nextRequestOffset for each in results}
            await asyncio.sleep(self.random.uniform(0.1, 1.0))


async def _is_stored(producer: AsyncProducer, message: Outgoing) -> bool:
    """Send *message*; return whether it is stored, after a pause if it is not."""
    try:
        await producer.send_batch([message])
    except SendFailed:
        await asyncio.sleep(_LOOK_S)
        return False
    return True


async def _run(
    load: _Load, flood: TopicFlood, seconds: float, *, consumers: int, senders: int
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    sending = [
        spawn(load.send(number, senders), name=f"sender {number}") for number in range(senders)
    ]
    passing = [
        spawn(load.consume(group), name=f"consumers of {group}")
        for group in GROUPS
        for _ in range(consumers)
    ]
    reading = spawn(load.fetch(), name="bulk reader")
    flooding = spawn(flood.run(), name="create topics")
    stopping = spawn(stop.wait(), name="stop")
    await asyncio.wait([*sending, stopping], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    load.stopped = True
    if stop.is_set():
        flood.stop()
    stopping.cancel()
    await asyncio.gather(*sending, flooding)
    deadline_ns = now_ns() + int(_DRAINS_S * 1e9)
    while load.oldest < load.sent and now_ns() < deadline_ns:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
    ended = [each for each in (*passing, reading) if each.done()]
    await cancel_and_wait(*passing, reading)
    for each in ended:
        each.result()  # they end only by an error


def main(
    servers: Annotated[str, typer.Option(help="host:port of the proxies, separated by commas")],
    topic: Annotated[str, typer.Option()],
    counter: Annotated[Path, typer.Option(help="file of the number of sent messages")],
    nameserver: Annotated[str, typer.Option(help="its host:port")],
    topics: Annotated[int, typer.Option(help="topics to create")],
    seconds: Annotated[float, typer.Option()] = 60.0,
    body_bytes: Annotated[int, typer.Option()] = 4_000_000,
    keys: Annotated[int, typer.Option()] = 64,
    backlog: Annotated[int, typer.Option()] = 200,
    consumers: Annotated[int, typer.Option(help="consumers of each group")] = 4,
    senders: Annotated[int, typer.Option()] = 4,
    seed: Annotated[int, typer.Option()] = 7,
) -> None:
    """Send and consume, then print the counts."""
    configure_logs(level="error")
    load = _Load(
        *(servers.split(","), topic, body_bytes, keys, backlog),
        random.Random(seed),
        Counter(counter),
    )
    flood = TopicFlood(nameserver, count=topics, seconds=seconds)
    uvloop.run(_run(load, flood, seconds, consumers=consumers, senders=senders))
    print_json(
        {
            "sent": load.sent,
            "handled": {group: len(each) for group, each in load.handled.items()},
            "deliveries": load.deliveries,
            "joins": load.joins,
            "fetched_mb": round(load.fetched_bytes / 1e6),
            "topics": flood.as_dict(),
        }
    )


if __name__ == "__main__":
    typer.run(main)
