"""Backlogs stored before a run, sent directly to the broker for speed."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import orjson

from broker_core.client import BrokerClient
from broker_core.names import QueueName, Topic
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from proxy.history.record import History, HistoryWriter, NullHistory
from thin_client import new_message_id

#: Prefix of the keys that get stuck, one per queue.
STUCK = "stuck-"
#: Property of a message group in RocketMQ 5.
MESSAGE_GROUP = "__SHARDINGKEY"
_BATCH = 400


@dataclass(frozen=True, slots=True)
class Place:
    """A topic at a broker."""

    nameserver: str
    topic: str
    queues: int


@dataclass(slots=True)
class Backlog:
    """*stuck* messages of the stuck keys alone, then *mixed* ones, of which the fraction *share*
    has stuck keys.

    The others are spread over *keys* keys. A body contains the number of earlier messages of its
    key, so that a consumer detects missing and reordered messages.
    """

    stuck: int
    mixed: int
    share: float
    keys: int
    seed: int
    body_bytes: int = 256
    #: False: the stuck messages never finish, so their sends are recorded as uncertain.
    settled: bool = True
    #: Whether the key of a message is also its message group, for FIFO topics of RocketMQ 5.
    grouped: bool = False
    _sent: dict[str, int] = field(default_factory=dict)

    async def store(self, place: Place, *, history: Path | None) -> None:
        """Send everything, all queues in parallel."""
        client = BrokerClient(nameservers=[place.nameserver], client_id=f"bench@{os.getpid()}")
        writer = HistoryWriter(history, "preload") if history is not None else NullHistory()
        await client.start()
        try:
            with closing(writer):
                queues = await client.queues(Topic(place.topic), fresh=True)
                await asyncio.gather(
                    *(self._fill(client, queue, len(queues), writer) for queue in queues)
                )
        finally:
            await client.close()

    async def _fill(
        self, client: BrokerClient, queue: QueueName, queues: int, history: History
    ) -> None:
        messages = self.messages(queue.topic, queue.queue_id, queues)
        while batch := list(islice(messages, _BATCH)):
            receipts = await client.send_batch(queue, batch, timeout_s=30)
            if not history.enabled:
                continue
            about = [_about(message) for message in batch]
            history.write_many("send", about)
            for each, receipt in zip(about, receipts, strict=True):
                sure = self.settled or not str(each["key"]).startswith(STUCK)
                place = {"queue": queue.qid, "offset": receipt.offset} if sure else {}
                history.write("send_ok" if sure else "send_info", **each, **place)

    def keys_in(self, queue_id: int, queues: int) -> Iterator[str]:
        """Yield the keys of one queue's messages, in order. Each key has one queue."""
        chooser = random.Random(f"{self.seed}/{queue_id}")
        stuck = f"{STUCK}{queue_id}"
        for _ in range(queue_id, self.stuck, queues):
            yield stuck
        own = [f"key-{number}" for number in range(queue_id, self.keys, queues)]
        if not own:
            return  # there are fewer keys than queues
        for _ in range(queue_id, self.mixed, min(queues, self.keys)):
            yield stuck if chooser.random() < self.share else chooser.choice(own)

    def bodies(self, queue_id: int, queues: int) -> Iterator[tuple[str, bytes]]:
        """Yield keys and bodies of one queue's messages, in order, for other stores."""
        for key in self.keys_in(queue_id, queues):
            yield key, self._body(key)

    def messages(self, topic: Topic, queue_id: int, queues: int) -> Iterator[OutgoingMessage]:
        """Yield the messages of one queue, in order."""
        for key in self.keys_in(queue_id, queues):
            yield self._message(topic, key)

    def _message(self, topic: Topic, key: str) -> OutgoingMessage:
        properties = {UNIQ_KEY: new_message_id()}
        if self.grouped:
            properties[MESSAGE_GROUP] = key
        return OutgoingMessage(topic, self._body(key), key=key, properties=properties)

    def _body(self, key: str) -> bytes:
        number = self._sent.get(key, 0)
        self._sent[key] = number + 1
        body = orjson.dumps({"key": key, "n": number, "pad": ""})
        pad = b"x" * max(0, self.body_bytes - len(body))
        return body[:-2] + pad + body[-2:]

    @staticmethod
    def is_stuck(key: str) -> bool:
        """Return whether *key* is a stuck key."""
        return key.startswith(STUCK)

    @property
    def sent(self) -> dict[str, int]:
        """Return the number of stored messages by key."""
        return dict(self._sent)


def _about(message: OutgoingMessage) -> dict[str, object]:
    return {"msg": message.properties[UNIQ_KEY], "topic": message.topic, "key": message.key}
