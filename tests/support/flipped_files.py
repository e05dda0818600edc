"""A data folder with one changed file, and what a broker must do with it.

The folder is made once, by a broker with messages of all kinds. Each harm is done to a copy: a
broker starts on it, or refuses to and names the file, and all that it serves is compared with what
was sent. Messages outside of the damage must be there, and no offset may be used again.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from structlog.testing import capture_logs

from broker_core.broker.server import Broker
from broker_core.broker.settings import BrokerSettings
from broker_core.errors import StoreError
from broker_core.names import Group, Topic
from broker_core.remoting.delay_properties import REAL_QUEUE, REAL_TOPIC
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import decode_messages, encode_properties
from broker_core.remoting.record_encoding import BatchEntry
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.store.reader import ReadStatus
from tests.support.store_messages import TOPIC, envelope

QUEUES = 3
GROUP = Group("billing")
COMMITTED = 7
_REFUNDS = Topic("refunds")
_MESSAGES = 420
_SETTINGS = {"max_message_bytes": 64 * 1024, "segment_bytes": 128 * 1024}

Place = tuple[Topic, int, int]  # topic, queue id, offset
Harm = Callable[[Path], None]


@dataclass(slots=True)
class Sent:
    """A message as it was sent, and its part of the log."""

    body: bytes
    properties: bytes
    start: int
    end: int


@dataclass(slots=True)
class FlippedFiles:
    """The folder of a broker that was closed, and copies of it."""

    folder: Path
    scratch: Path
    seed: int
    sent: dict[Place, Sent] = field(default_factory=dict)
    refused: int = 0
    damaged: int = 0

    @classmethod
    async def made_in(cls, folder: Path, *, seed: int) -> FlippedFiles:
        """Make the folder below *folder*, which is empty."""
        files = cls(folder / "data", folder / "copy", seed)
        with capture_logs():
            await files._make(random.Random(seed))
        return files

    def kinds(self) -> dict[str, list[Path]]:
        """Return the files that a broker reads, by kind, as paths below the folder."""
        kinds: dict[str, list[Path]] = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.stat().st_size and path.name != "lock":
                below = path.relative_to(self.folder)
                kinds.setdefault(below.parts[0], []).append(below)
        return kinds

    def used_size(self, file: Path) -> int:
        """Return the size of *file* without zeros at its end."""
        return len((self.folder / file).read_bytes().rstrip(b"\0"))

    async def check(self, file: Path, harm: Harm, *, position: int, size: int) -> None:
        """Do *harm* to *file* from *position* on, and check what a broker serves then."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.copytree(self.folder, self.scratch)
        before = (self.scratch / file).read_bytes()
        harm(self.scratch / file)
        hurt: set[Place] = set()
        if (self.scratch / file).read_bytes() == before:
            position, size = 0, 0  # the zeros were there
        if file.parts[0] == "commitlog":
            at = int(file.name) + position
            hurt = {
                place
                for place, sent in self.sent.items()
                if size and sent.start < at + size and at < sent.end
            }
        with capture_logs() as logs:
            broker = Broker(self._settings(self.scratch))
            try:
                await broker.start()
            except StoreError as error:
                self._check_refused(file, error)
                return
            try:
                await self._check_served(broker, hurt)
            finally:
                await broker.close()
        if hurt:
            self.damaged += 1
            assert any(line["log_level"] == "error" for line in logs), "the damage is not reported"

    def _check_refused(self, file: Path, error: StoreError) -> None:
        assert file.parts[0] not in ("commitlog", "consumequeue", "index"), error
        assert file.name.removesuffix(".bak") in str(error), error
        self.refused += 1

    async def _check_served(self, broker: Broker, hurt: set[Place]) -> None:
        components = broker.components
        reader = components.store.reader
        seen: set[Place] = set()
        for topic, queue_id in {(topic, queue_id) for topic, queue_id, _ in self.sent}:
            ends = [at for name, number, at in self.sent if (name, number) == (topic, queue_id)]
            assert reader.next_offset(topic, queue_id) >= max(ends) + 1, "an offset is used again"
            for tags in (None, frozenset({java_hash("bar")})):
                seen |= await self._read_all(broker, topic, queue_id, tags)
        assert not (set(self.sent) - seen - hurt), "intact messages are missing"
        assert {
            (run.topic, run.queue_id, offset)
            for run in reader.damaged
            for offset in range(run.first, run.end)
        } <= hurt, "intact messages count as damaged"
        config = components.directory.topics.find(TOPIC)
        assert config is not None
        assert config.read_queues == QUEUES
        assert components.offsets.committed(GROUP, TOPIC, 0) == COMMITTED
        assert GROUP in {config.group for config in components.group_directory.configs}
        assert len(components.delayed) >= 1
        assert components.keys.index is not None
        found = [
            message.body
            async for message in components.keys.index.find(
                TOPIC, "key-17", begin_ms=0, end_ms=2**62, timeout_s=30
            )
        ]
        wanted = [
            sent.body
            for place, sent in self.sent.items()
            if place[0] == TOPIC and b"KEYS\x01key-17\x02" in sent.properties and place not in hurt
        ]
        assert sorted(found) == sorted(wanted), "messages are not found by their key"

    async def _read_all(
        self, broker: Broker, topic: Topic, queue_id: int, tags: frozenset[int] | None
    ) -> set[Place]:
        """Read a queue as clients do; return the messages, which are those that were sent."""
        reader = broker.components.store.reader
        seen: set[Place] = set()
        at, end = 0, reader.end_offset(topic, queue_id)
        while at < end:
            read = reader.read(topic, queue_id, at, max_messages=100, tag_hashes=tags)
            if read.status is ReadStatus.EXAMINED:  # in a thread; clients ask again
                await asyncio.sleep(0.001)
                continue
            assert read.status in (ReadStatus.FOUND, ReadStatus.NO_MATCH, ReadStatus.DAMAGED)
            assert read.next_offset > at, read
            for message in decode_messages(read.body):
                place = (topic, queue_id, message.queue_offset)
                sent = self.sent[place]
                assert message.body == sent.body, "another body was delivered"
                assert message.raw_properties == sent.properties, "other properties were delivered"
                assert message.topic == topic
                seen.add(place)
            at = read.next_offset
        return seen

    def _settings(self, folder: Path) -> BrokerSettings:
        return BrokerSettings(data=folder, listen="127.0.0.1:0", **_SETTINGS)

    async def _make(self, chooser: random.Random) -> None:
        broker = Broker(self._settings(self.folder))
        await broker.start()
        components = broker.components
        for topic in (TOPIC, _REFUNDS):
            config = TopicConfig(topic=topic, read_queues=QUEUES, write_queues=QUEUES)
            await components.directory.define(config)
        components.group_directory.config(GROUP)
        for number in range(_MESSAGES):
            topic = TOPIC if number % 3 else _REFUNDS
            properties = encode_properties(
                {"KEYS": f"key-{number % 50}", "TAGS": "bar" if number % 2 else "red"}
            )
            entry = BatchEntry(0, chooser.randbytes(chooser.randint(1, 2000)), properties)
            await self._put(broker, topic, chooser.randrange(QUEUES), entry)
        delayed = encode_properties(
            {REAL_TOPIC: TOPIC, REAL_QUEUE: "0", "KEYS": "later", "TIMER_OUT_MS": str(2**42)}
        )
        await self._put(broker, Topic("rmq_sys_wheel_timer"), 0, BatchEntry(0, b"later", delayed))
        components.offsets.commit(GROUP, TOPIC, 0, COMMITTED)
        assert components.keys.index is not None
        async for _ in components.keys.index.find(
            TOPIC, "key-1", begin_ms=0, end_ms=2**62, timeout_s=30
        ):
            pass
        await broker.close()

    async def _put(self, broker: Broker, topic: Topic, queue_id: int, entry: BatchEntry) -> None:
        store = broker.components.store
        stored = await store.put(envelope(queue_id, topic), [entry], store_ms=1)
        offset, place = stored.first_queue_offset, stored.physical_offsets[0]
        [(_, size, _)] = store.reader.entries(topic, queue_id, offset, count=1)
        sent = Sent(entry.body, entry.properties, place, place + size)
        self.sent[topic, queue_id, offset] = sent


def flip(position: int, bits: int) -> Harm:
    """Return the harm of changing some bits of one byte."""

    def harm(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[position] ^= bits
        path.write_bytes(content)

    return harm


def zero(position: int, size: int) -> Harm:
    """Return the harm of losing some bytes, which become zero."""

    def harm(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[position : position + size] = bytes(len(content[position : position + size]))
        path.write_bytes(content)

    return harm
