"""A whole gateway: nameserver, broker of either kind, and any number of proxies in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from broker_core.client import BrokerClient, SendReceipt
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import OutgoingMessage
from proxy.app import Proxy
from proxy.core.pipeline.effects import PipelineStatistics
from proxy.history.check import verify
from proxy.history.findings import Report
from proxy.history.record import HistoryWriter
from proxy.lane.tracing import Spans
from proxy.listening import Addresses
from proxy.live.settings_file import SettingsFile
from proxy.settings.proxy_settings import load_settings
from testkit.broker_process import AnyCluster
from testkit.brokers import EMBEDDED_ONES, Brokers

TOPIC = "orders"
GROUP = "billing"

#: The error for an operation on a queue that is moving.
HANDED_OVER = "is being handed over: "

#: Gateways may share an official broker, so each uses its own topic and group there.
_numbers = count(1)


@dataclass(slots=True)
class Gateway:
    """The gateway under test. ``settings`` override those of every proxy."""

    cluster: AnyCluster
    topic: Topic
    group: Group
    histories: Path
    settings: dict[str, Any]
    client: BrokerClient
    sends: HistoryWriter
    broker: HistoryWriter
    broker_parts: tuple[str, ...]
    _proxies: list[Proxy] = field(default_factory=list)
    _sent: int = 0

    @property
    def dead_letter_topic(self) -> Topic:
        return Topic(f"%DLQ%{self.group}")

    def statistics(self) -> list[PipelineStatistics]:
        """Return the statistics of all queues owned by proxies here."""
        running = [proxy for proxy in self._proxies if proxy is not None]
        return [each for proxy in running for lane in proxy.lanes for each in lane.statistics()]

    def queue(self, number: int) -> QueueName:
        return QueueName(self.topic, self.cluster.broker_name, number)

    async def start_proxy(
        self, *, file: Path | None = None, spans: Spans | None = None, **overrides: Any
    ) -> tuple[Proxy, Addresses]:
        """Start one more proxy, which is closed at the end at the latest.

        *file*: its settings file for groups, which it watches. *spans*: the exporter of its spans.
        """
        given = {
            "nameserver": self.cluster.nameserver,
            "listen.thrift": "127.0.0.1:0",
            "listen.http": "127.0.0.1:0",
            **self.settings,
            **overrides,
        }
        if file is not None:
            del given["groups"]
        source = None if file is None else SettingsFile(file, given, environment={})
        settings = load_settings(file, given, environment={})
        history = HistoryWriter(self.histories, f"proxy-{len(self._proxies)}")
        proxy = Proxy(settings, history=history, file=source, spans=spans)
        self._proxies.append(proxy)
        await asyncio.sleep(0.001)  # names of proxies contain the time
        return proxy, await proxy.start()

    async def restart_broker(self, *, crash: bool = False) -> None:
        """Restart the cluster's broker and record it: a crashed broker may forget commits."""
        if not crash:
            self.broker.write("stop")
        await self.cluster.restart_broker(crash=crash)
        self.broker.write("start", parts=self.broker_parts)

    async def close_proxy(self, proxy: Proxy) -> None:
        """Drain and stop a proxy."""
        self._proxies[self._proxies.index(proxy)] = None  # type: ignore[call-overload]
        await proxy.close()

    async def send(
        self, keys: Sequence[str | None], *, body: str = '{{"id": "{key}", "n": {n}}}'
    ) -> list[SendReceipt]:
        """Send one message for each key, in order; *body* is a template of ``key`` and ``n``."""
        queues = await self.client.writable_queues(self.topic)
        by_queue: dict[int, list[OutgoingMessage]] = {}
        for key in keys:
            self._sent += 1
            number = self._sent if key is None else abs(java_hash(key))
            text = body.format(key=key, n=self._sent)
            message = OutgoingMessage(topic=self.topic, body=text.encode(), key=key)
            by_queue.setdefault(number % len(queues), []).append(message)
        receipts = []
        for index, messages in by_queue.items():
            for start in range(0, len(messages), 500):
                receipts += await self.client.send_batch(
                    queues[index], messages[start : start + 500]
                )
        about = [
            {
                "msg": receipt.message_id,
                "topic": self.topic,
                "queue": receipt.queue.qid,
                "offset": receipt.offset,
            }
            for receipt in receipts
        ]
        self.sends.write_many("send", about)
        self.sends.write_many("send_ok", about)
        return receipts

    def events(self, kind: str, *, node: str = "*") -> list[dict[str, Any]]:
        """Return the events of one kind in the histories of *node* (a pattern of names)."""
        lines = [
            line
            for path in sorted(self.histories.glob(f"{node}.jsonl"))
            for line in path.read_bytes().split(b"\n")
            if line.startswith(b'{"e":"%s"' % kind.encode())
        ]
        return [orjson.loads(line) for line in lines]

    def all_finished(self) -> bool:
        """Return whether every sent message is finished."""
        finished = {(each["queue"], each["offset"]) for each in self.events("finish")}
        return {(each["queue"], each["offset"]) for each in self.events("send_ok")} <= finished

    def verify(self) -> Report:
        """Judge all histories so far."""
        return verify(sorted(self.histories.glob("*.jsonl")))


@asynccontextmanager
async def run_gateway(
    tmp_path: Path,
    *,
    brokers: Brokers = EMBEDDED_ONES,
    queues: int = 8,
    order_key: str | None = "KEY",
    topic: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """Run a broker with the topic, without a proxy; *topic* are further settings of the group's
    topic.
    """
    ours, group = Topic(TOPIC), Group(GROUP)
    if brokers.official:
        number = next(_numbers)
        ours, group = Topic(f"{TOPIC}-{number}"), Group(f"{GROUP}-{number}")
    parts = ("rocketmq",) if brokers.official else ("broker",)
    consumed = {"name": ours, "order_key": order_key, **(topic or {})}
    async with brokers.run(tmp_path / "broker") as cluster:
        client = BrokerClient(
            nameservers=[cluster.nameserver], client_id="test@1#1", request_timeout_s=20
        )
        await client.start()
        histories = tmp_path / "histories"
        gateway = Gateway(
            cluster,
            ours,
            group,
            histories,
            {"groups": [{"name": group, "topics": [consumed]}], "commit_every_s": 0.2, **settings},
            client,
            HistoryWriter(histories, "sender"),
            HistoryWriter(histories, "broker", parts=parts),
            parts,
        )
        try:
            await client.create_topic(ours, queues=queues)
            yield gateway
        finally:
            for proxy in gateway._proxies:
                if proxy is not None:
                    await proxy.close()
            await client.close()
            gateway.sends.close()
            gateway.broker.close()
