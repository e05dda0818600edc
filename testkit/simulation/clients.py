"""Producers and consumers of a world: the Python thin client with handlers whose behavior
changes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Coroutine, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from broker_core.client import BrokerClient, Producer
from broker_core.errors import RemotingError
from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.history_observer import HistoryObserver
from testkit.ddmq_client import MODES, DdmqClient, DdmqMessage
from testkit.simulation.history import Pen
from testkit.simulation.process import SimulatedProcess, current_process
from testkit.simulation.world import Died, Node, World
from thin_client import (
    AsyncConsumer,
    AsyncProducer,
    Message,
    Retry,
    SendFailed,
    new_message_id,
)
from thin_client.delivery import UNIQUE_ID, Delivery
from thin_client.errors import Refused

#: Properties that brokers and producers add to every message.
_OF_THE_TRANSPORT = frozenset(
    (
        UNIQUE_ID,
        "KEYS",
        "TAGS",
        "WAIT",
        "CLUSTER",
        "MSG_REGION",
        "TRACE_ON",
        "__SHARDINGKEY",
        "INSTANCE_ID",
    )
)


def digest(body: bytes, key: str | None, tag: str | None, properties: Mapping[str, str]) -> str:
    """Return a digest of the message as a handler sees it."""
    own = sorted(each for each in properties.items() if each[0] not in _OF_THE_TRANSPORT)
    content = orjson.dumps([body.hex(), key, tag, own])
    return f"{zlib.crc32(content):08x}"


@dataclass(slots=True)
class Habits:
    """Behavior of handlers by (group, key), which a program changes while they run."""

    failing: set[tuple[str, str]] = field(default_factory=set)
    stuck: set[tuple[str, str]] = field(default_factory=set)
    work_s: float = 0.01

    def work_for(self, seconds: float) -> None:
        """Let handlers take about *seconds*."""
        self.work_s = seconds

    def cure(self) -> None:
        """Stop all failures, blocks and slowness."""
        self.work_s = 0.01
        self.failing.clear()
        self.stuck.clear()


class _Observer(HistoryObserver):
    """Adds the handler's view of the message to each start event."""

    def on_handle_start(self, message: Message) -> None:
        self.open += 1
        seen = digest(message.body, message.key, message.tag, message.properties)
        self._write("handle_start", message, digest=seen)


class ConsumerNode(Node):
    """A consumer of *group* that pulls *topics* (None: all) from the first of *servers* that
    answers.
    """

    def begin(
        self,
        servers: Sequence[str],
        *,
        group: str,
        topics: Sequence[str] | None,
        habits: Habits,
        concurrency: int = 4,
        max_run: int = 1,
        ddmq: str | None = None,
        broadcast: bool = False,
        by_key: bool = True,
        token: str | None = None,
        may_be_refused: bool = False,
    ) -> None:
        """Start in a process of its own.

        *ddmq*: behave like DDMQ's client of that mode. *broadcast*: the group delivers every
        message to each of its clients. *by_key*: the group orders by KEY; DDMQ's clients do not
        receive the order key. *may_be_refused*: its group or topic may be removed, which ends it by
        an error, as does the end of its *token*.
        """
        told = f"{group}%{self.name}" if broadcast else group
        process = self.new_process()
        pen = process.run(lambda: Pen(self.world.events, self.name, parts=("consumer",)))
        process.at_death.append(pen.silence)

        async def handle(message: Message) -> None:
            at_work = current_process()
            assert at_work is not None
            chance = at_work.chance.random()
            place = (group, message.key or "")
            while place in habits.stuck:  # noqa: ASYNC110  # virtual time costs nothing
                await asyncio.sleep(1)
            await asyncio.sleep(habits.work_s * (0.2 + chance) if chance < 0.95 else 0.8)
            if place in habits.failing or chance < 0.01:
                raise Retry

        def make() -> AsyncConsumer:
            observer = _Observer(pen, group=told, consumer=self.name)
            return AsyncConsumer(
                servers,
                group=group,
                topics=topics,
                concurrency=concurrency,
                max_run=max_run,
                client_id=self.name,
                observer=observer,
                token=token,
            )

        if ddmq is not None:
            order = "KEY" if by_key else "other"
            self._begin_ddmq(process, pen, servers, group, topics, habits, ddmq, order)
            return
        consumer = process.run(make)
        self._stop = consumer.stop
        main = consumer.run(handle, handle_signals=False)
        self._work(_until_refused(main) if may_be_refused or token is not None else main)

    def _begin_ddmq(
        self,
        process: SimulatedProcess,
        pen: Pen,
        servers: Sequence[str],
        group: str,
        topics: Sequence[str] | None,
        habits: Habits,
        mode: str,
        order: str,
    ) -> None:
        async def handle(message: DdmqMessage) -> bool:
            place = (group, message.key or "")
            while place in habits.stuck:  # noqa: ASYNC110  # virtual time costs nothing
                await asyncio.sleep(1)
            await asyncio.sleep(habits.work_s)
            return place not in habits.failing

        client = process.run(
            lambda: DdmqClient(
                list(servers),
                group,
                MODES[mode],
                name=self.name,
                topic=topics[0] if topics else None,
                order=order,
                history=pen,
            )
        )
        self._stop = client.stop
        self._work(client.run(handle))

    def _work(self, main: Coroutine[Any, Any, None]) -> None:
        self._main = self.work(main)

    @property
    def ended(self) -> bool:
        """Whether it drained and stopped by itself."""
        return self._main.done()

    def stop(self) -> None:
        """Drain and stop."""
        assert self.process is not None
        if self.process.runs:
            self.process.run(self._stop)


async def _until_refused(main: Coroutine[Any, Any, None]) -> None:
    """Run a consumer, which may end by a refusal."""
    with suppress(Refused):
        await main


class _Telling(AsyncProducer):
    """Records in the history each attempt that may have stored a message that is sent again."""

    pen: Pen
    topic: str

    def _paused(self, request: Delivery) -> None:
        if request.in_doubt:
            about = [
                {"msg": each, "topic": self.topic, "error": "a try failed"}
                for each in request.open_ids()
            ]
            self.pen.write_many("send_info", about)


@dataclass(slots=True)
class Flow:
    """A producer's messages to *topic*: one of *keys* every *every_s* seconds, *left* messages in
    all.
    """

    topic: str
    keys: tuple[str | None, ...]
    every_s: float
    left: int
    body_bytes: int = 60
    properties: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str | None, ...] = (None,)


def _body(flow: Flow, key: str | None) -> bytes:
    return orjson.dumps({"id": key, "n": flow.left}) + b" " * max(0, flow.body_bytes - 20)


class ProducerNode(Node):
    """Sends flows; each flow's messages one after the other. Topics in *held* have to wait."""

    def begin(
        self, servers: Sequence[str], *, held: Set[str] = frozenset(), token: str | None = None
    ) -> None:
        """Start in a process of its own; flows are added by ``send``."""
        self.held = held
        self._token = token
        process = self.new_process()
        self.pen = process.run(lambda: Pen(self.world.events, self.name, parts=("producer",)))
        process.at_death.append(self.pen.silence)
        self.servers = list(servers)
        self.acknowledged = 0

    def send_by(self, servers: Sequence[str]) -> None:
        """Send flows that start from now on to these servers."""
        self.servers = list(servers)

    async def send(self, flow: Flow) -> None:
        """Send *flow* concurrently with others; return at its end, or that of the process."""
        with suppress(Died):
            await self.do(self._send(flow))

    async def _send(self, flow: Flow) -> None:
        process = current_process()
        assert process is not None
        producer = _Telling(self.servers, timeout_s=5, token=self._token)
        producer.pen, producer.topic = self.pen, flow.topic
        async with producer:
            while flow.left > 0:
                while flow.topic in self.held:  # noqa: ASYNC110  # virtual time costs nothing
                    await asyncio.sleep(0.5)
                flow.left -= 1
                key = process.chance.choice(flow.keys)
                tag = process.chance.choice(flow.tags)
                await self._send_one(producer, flow, key, tag)
                await asyncio.sleep(flow.every_s * (0.5 + process.chance.random()))

    async def send_natively(self, flow: Flow) -> None:
        """Like ``send``, but directly to the brokers."""
        with suppress(Died):
            await self.do(self._send_natively(flow))

    async def _send_natively(self, flow: Flow) -> None:
        process = current_process()
        assert process is not None
        client = BrokerClient(
            nameservers=[self.world.nameserver.address],
            client_id=f"{self.name}@{process.number}#{flow.topic}",
            request_timeout_s=5,
        )
        await client.start()

        def in_doubt(messages: Sequence[OutgoingMessage], error: RemotingError) -> None:
            about = [
                {"msg": each.properties[UNIQUE_ID], "topic": flow.topic, "error": str(error)[:80]}
                for each in messages
            ]
            self.pen.write_many("send_info", about)

        producer = Producer(client, on_doubt=in_doubt)
        try:
            while flow.left > 0:
                while flow.topic in self.held:  # noqa: ASYNC110  # virtual time costs nothing
                    await asyncio.sleep(0.5)
                flow.left -= 1
                key = process.chance.choice(flow.keys)
                await self._send_one_natively(producer, flow, key, process.chance.choice(flow.tags))
                await asyncio.sleep(flow.every_s * (0.5 + process.chance.random()))
        finally:
            await client.close()

    async def _send_one_natively(
        self, producer: Producer, flow: Flow, key: str | None, tag: str | None
    ) -> None:
        msg = new_message_id()
        body = _body(flow, key)
        about = {"msg": msg, "topic": flow.topic, "key": key}
        tagged = {} if tag is None else {"tag": tag}
        self.pen.write("send", **about, **tagged, digest=digest(body, key, tag, flow.properties))
        message = OutgoingMessage(
            topic=Topic(flow.topic),
            body=body,
            key=key,
            tag=tag,
            properties={**flow.properties, UNIQUE_ID: msg},
        )
        try:
            receipt = await producer.send(message)
        except Exception as error:
            self.pen.write("send_info", **about, error=str(error)[:100])
        else:
            self.acknowledged += 1
            place = {"queue": receipt.queue.qid, "offset": receipt.offset}
            self.pen.write("send_ok", **about, **place)

    async def _send_one(
        self, producer: AsyncProducer, flow: Flow, key: str | None, tag: str | None
    ) -> None:
        msg = new_message_id()
        body = _body(flow, key)
        seen = digest(body, key, tag, flow.properties)
        about = {"msg": msg, "topic": flow.topic, "key": key}
        tagged = {} if tag is None else {"tag": tag}
        self.pen.write("send", **about, **tagged, digest=seen)
        try:
            properties = {**flow.properties, UNIQUE_ID: msg}
            await producer.send(flow.topic, body, key=key, tag=tag, properties=properties)
        except SendFailed as error:
            event = "send_info" if error.outcome_unknown else "send_fail"
            self.pen.write(event, **about, error=str(error)[:100])
        except Exception as error:
            self.pen.write("send_info", **about, error=str(error)[:100])
        else:
            self.acknowledged += 1
            self.pen.write("send_ok", **about)


def add_consumer(world: World, name: str) -> ConsumerNode:
    """Add a node for a consumer."""
    return world.add(ConsumerNode, name)


def add_producer(world: World, name: str) -> ProducerNode:
    """Add a node for a producer."""
    return world.add(ProducerNode, name)
