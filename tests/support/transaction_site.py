"""A message store with its transactions, without a network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from broker_core.broker.check_rules import CheckRules
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.ended_lives import EndedLives
from broker_core.broker.topics.topics import HALF_TOPIC
from broker_core.broker.transactions.coordinator import TransactionCoordinator
from broker_core.broker.transactions.records import place_half
from broker_core.names import Topic
from broker_core.remoting.message import (
    SYS_TRANSACTION_PREPARED,
    decode_messages,
    encode_properties,
)
from broker_core.remoting.record_encoding import BatchEntry, Envelope
from broker_core.remoting.transaction_headers import End, EndTransactionHeader
from broker_core.store.message_store import MessageStore
from tests.support.store_messages import HOST, TOPIC

SEGMENT = 3000  # some records each: decisions fall before and after the end of a file
GROUP = "billing"
RULES = CheckRules(timeout_ms=50, interval_ms=100, max_checks=2)


class AnyTopic:
    """A directory that has all queues."""

    def has_queue(self, topic: Topic, queue_id: int) -> bool:
        return True


@dataclass
class Site:
    """A store with its transactions, without a network."""

    store: MessageStore
    coordinator: TransactionCoordinator
    offsets: CommittedOffsets

    @classmethod
    def open(cls, folder: Path, offsets: CommittedOffsets) -> Site:
        store = MessageStore(folder, segment_bytes=SEGMENT, flush="async")
        store.start()
        return cls.on(store, offsets)

    @classmethod
    def on(cls, store: MessageStore, offsets: CommittedOffsets) -> Site:
        offsets.clamp(store.reader.end_offset)
        coordinator = TransactionCoordinator(
            store,
            rules=RULES,
            directory=cast(TopicDirectory, AnyTopic()),
            offsets=offsets,
            ended_lives=EndedLives(store),
            store_host=lambda: HOST,
        )
        coordinator.load()
        return cls(store, coordinator, offsets)

    async def prepare(self, body: bytes) -> EndTransactionHeader:
        envelope = Envelope(TOPIC, 0, HOST, HOST, sys_flag=SYS_TRANSACTION_PREPARED, born_ms=0)
        raw = encode_properties({"TRAN_MSG": "true", "TAGS": "t", "UNIQ_KEY": body.decode()})
        placed = place_half(envelope, BatchEntry(0, body, raw), group=GROUP)
        stored = await self.store.put(placed.envelope, placed.entries, store_ms=0)
        return EndTransactionHeader(
            producer_group=GROUP,
            tran_state_table_offset=stored.first_queue_offset,
            commit_log_offset=stored.physical_offsets[0],
            commit_or_rollback=End.UNKNOWN,
        )

    def visible(self, topic: Topic = TOPIC) -> Counter[bytes]:
        found = self.store.reader.read(topic, 0, 0, max_messages=1000)
        return Counter(message.body for message in decode_messages(found.body))

    def open_bodies(self) -> set[bytes]:
        return {self._body(half.offset) for half in self.coordinator.undecided()}

    def _body(self, offset: int) -> bytes:
        found = self.store.reader.read(HALF_TOPIC, 0, offset, max_messages=1)
        (half,) = decode_messages(found.body)
        assert half.queue_offset == offset
        return half.body

    @property
    def end(self) -> int:
        return self.store.log.end_offset


def ended(header: EndTransactionHeader, how: int) -> EndTransactionHeader:
    return EndTransactionHeader(
        producer_group=GROUP,
        tran_state_table_offset=header.tran_state_table_offset,
        commit_log_offset=header.commit_log_offset,
        commit_or_rollback=how,
    )
