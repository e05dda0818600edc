"""A copy whose disk has no room for the consume queue of confirmed messages."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.message_store import MessageStore
from broker_core.store.rejoin import Rejoin
from broker_core.store.replicated_store import ReplicatedStore
from tests.support.store_messages import TOPIC, entry, envelope

SEGMENT = 4000


async def test_what_found_no_place_in_its_queue_is_visible_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = MessageStore(tmp_path / "m", segment_bytes=SEGMENT)
    master.start()
    for n in range(6):
        await master.put(envelope(), [entry(b"%d" % n * 1500)], store_ms=1)
    await master.delete_expired(before_ms=None, keep_bytes=SEGMENT)
    first = master.reader.min_offset(TOPIC, 0)
    assert first > 1
    slave = ReplicatedStore(tmp_path / "s", segment_bytes=SEGMENT)
    slave.copies.plan_rejoin(Rejoin(master.copies.first_offset, 0, {}))
    await slave.close()
    slave = ReplicatedStore(tmp_path / "s", segment_bytes=SEGMENT)
    slave.start()
    slave.confirm(master.durable_end)  # it is behind

    def full(queue: ConsumeQueue, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def copy() -> bool:
        chunk = master.copies.chunk(slave.copies.end_offset, limit=master.durable_end)
        if chunk is not None:
            await asyncio.wait_for(slave.copy(chunk), 5)
        return chunk is not None

    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "start_at", full)
        assert await copy()
        assert slave.reader.end_offset(TOPIC, 0) == 0
    while await copy():
        pass
    assert slave.visible_end == master.durable_end
    assert (slave.reader.min_offset(TOPIC, 0), slave.reader.end_offset(TOPIC, 0)) == (first, 6)
    await slave.close()
    await master.close()
