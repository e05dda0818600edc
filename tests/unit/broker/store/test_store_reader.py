"""Reads of queues that alternate in the log, compared with reading one message at a time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker_core.remoting.message import decode_messages
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import StoreReader
from tests.support.store_messages import TOPIC, entry, envelope


def one_by_one(reader: StoreReader, queue_id: int, offset: int, *, most: int, room: int) -> bytes:
    """Return the expected result: messages until the next one has no room, at least one."""
    records = b""
    end = min(offset + most, reader.end_offset(TOPIC, queue_id))
    for each in range(offset, end):
        record = reader.read(TOPIC, queue_id, each, max_messages=1).body
        if records and len(records) + len(record) > room:
            break
        records += record
    return records


@pytest.mark.parametrize("run", [1, 3, 20])
async def test_a_read_gives_what_reading_one_by_one_gives(tmp_path: Path, run: int) -> None:
    """*run*: maximum number of consecutive messages of a queue in the log."""
    choose = random.Random(run)
    store = MessageStore(tmp_path, segment_bytes=30_000, flush="async")
    store.start()
    for number in range(200 // run):
        entries = [
            entry(b"%d" % number * choose.choice([1, 40, 900]))
            for _ in range(choose.randint(1, run))
        ]
        await store.put(envelope(number % 3), entries, store_ms=1)
    reader = store.reader
    for _ in range(60):
        queue_id = choose.randrange(3)
        offset = choose.randrange(reader.end_offset(TOPIC, queue_id))
        most, room = choose.choice([1, 2, 9, 1000]), choose.choice([1, 500, 5_000, 10**6])
        found = reader.read(TOPIC, queue_id, offset, max_messages=most, max_bytes=room)
        assert found.body == one_by_one(reader, queue_id, offset, most=most, room=room)
        offsets = [each.queue_offset for each in decode_messages(found.body, check_crc=True)]
        assert offsets == list(range(offset, found.next_offset))
        assert found.messages == len(offsets)
    await store.close()
