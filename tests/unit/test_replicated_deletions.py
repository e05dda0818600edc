"""Topics deleted in stores that are copied: the same in each of them, whenever it is confirmed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from broker_core.store import message_store
from broker_core.store.message_store import MessageStore
from broker_core.store.replicated_store import ReplicatedStore
from tests.support.store_messages import TOPIC, entry, envelope
from tests.unit.test_replicated_store import assert_equal, bodies, catch_up, master_at, slave_at

QUEUES = 3


async def put(store: MessageStore, body: bytes, *, queue_id: int = 0) -> int:
    stored = await store.put(envelope(queue_id), [entry(body)], store_ms=1000)
    return stored.first_queue_offset


@pytest.mark.parametrize("seed", range(6))
async def test_a_copy_deletes_what_its_master_deleted(tmp_path: Path, seed: int) -> None:
    """Killed before or behind it is confirmed, on the way or at the end."""
    chooser = random.Random(seed)
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    for _ in range(6):
        for n in range(chooser.randrange(8)):
            await put(master, b"%d" % n * 50, queue_id=chooser.randrange(QUEUES))
        if chooser.random() < 0.7:
            await master.delete_topic(TOPIC, store_ms=1000)
        await catch_up(master, slave, chunks=chooser.choice((1, 2, 10_000)))
        if chooser.random() < 0.6:
            slave.confirm(slave.copies.end_offset)
        if chooser.random() < 0.5:
            slave.abandon()
            slave = slave_at(tmp_path / "s")
    await put(master, b"last")
    await catch_up(master, slave)
    slave.confirm(slave.copies.end_offset)
    assert_equal(master, slave)
    await slave.close()
    await master.close()


@pytest.mark.parametrize("restart", [False, True])
async def test_a_deletion_counts_once_it_is_confirmed_and_what_follows_stays(
    tmp_path: Path, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_store, "_VISIBLE_WITHIN_S", 0.01)
    store = ReplicatedStore(tmp_path, segment_bytes=4000)
    store.start()
    await put(store, b"old 0")
    store.confirm(store.copies.end_offset)
    await put(store, b"old 1")  # not confirmed, and so not seen
    with pytest.raises(OSError, match="no replica has confirmed it yet"):
        await store.delete_topic(TOPIC, store_ms=1000)
    if restart:
        await store.close()
        store = ReplicatedStore(tmp_path, segment_bytes=4000)
        store.start()
        assert await put(store, b"new 0") == 0
    else:
        assert bodies(store, 0) == [b"old 0"]
        with pytest.raises(OSError, match="is being deleted"):
            await put(store, b"refused")
        again = asyncio.ensure_future(store.delete_topic(TOPIC, store_ms=1000))  # noqa: TID251
        await asyncio.sleep(0)
        store.confirm(store.copies.end_offset)
        await again
        assert await put(store, b"new 0") == 0
    assert await put(store, b"new 1") == 1
    store.confirm(store.copies.end_offset)
    assert bodies(store, 0) == [b"new 0", b"new 1"]
    store.abandon()
    store = ReplicatedStore(tmp_path, segment_bytes=4000)
    store.start()
    store.confirm(store.copies.end_offset)
    assert bodies(store, 0) == [b"new 0", b"new 1"]
    store.abandon()
