"""Topics deleted in stores with copies: equal in each of them, whenever it is confirmed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker_core.broker.admin.topic_deletion import TopicDeletion
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.pulling.long_polls import LongPolls
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import Topics
from broker_core.broker.traffic import Traffic
from broker_core.names import Topic
from broker_core.remoting.message import StoredMessage, decode_messages
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.store import message_store, unconfirmed
from broker_core.store.copies import Copied, copied
from broker_core.store.message_store import MessageStore
from broker_core.store.replicated_store import ReplicatedStore
from tests.support.store_messages import TOPIC, entry, envelope
from tests.unit.broker.store.replicated_stores import (
    assert_equal,
    bodies,
    catch_up,
    master_at,
    slave_at,
)

QUEUES = 3


async def put(store: MessageStore, body: bytes, *, queue_id: int = 0) -> int:
    stored = await store.put(envelope(queue_id), [entry(body)], store_ms=1000)
    return stored.first_queue_offset


@pytest.mark.parametrize("seed", range(6))
async def test_a_copy_deletes_what_its_master_deleted(tmp_path: Path, seed: int) -> None:
    """Killed before or after it is confirmed, in between or at the end."""
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
    monkeypatch.setattr(message_store, "VISIBLE_WITHIN_S", 0.01)
    store = ReplicatedStore(tmp_path, segment_bytes=4000)
    store.start()
    await put(store, b"old 0")
    store.confirm(store.copies.end_offset)
    await put(store, b"old 1")  # not confirmed, and so invisible
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


class Compared(int):
    """Counts comparisons."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return int(self) == other

    __hash__ = int.__hash__


async def test_messages_of_a_deleted_topic_are_left_out_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searching each one among all would never end in a start behind a million."""
    monkeypatch.setattr(message_store, "VISIBLE_WITHIN_S", 0.01)
    other = Topic("other")
    store = ReplicatedStore(tmp_path, segment_bytes=200_000)
    store.start()
    for n in range(200):
        for topic in (TOPIC, other):
            await store.put(envelope(topic=topic), [entry(b"%d" % n)], store_ms=1000)
    with pytest.raises(OSError, match="no replica has confirmed it yet"):
        await store.delete_topic(TOPIC, store_ms=1000)
    store.abandon()

    def compared(message: StoredMessage) -> Copied:
        return copied(message)._replace(physical=Compared(message.physical_offset))

    monkeypatch.setattr(unconfirmed, "copied", compared)
    store = ReplicatedStore(tmp_path, segment_bytes=200_000)
    assert Compared.count <= 400
    store.start()
    store.confirm(store.copies.end_offset)
    found = store.reader.read(other, 0, 0, max_messages=400)
    assert [each.body for each in decode_messages(found.body)] == [b"%d" % n for n in range(200)]
    assert bodies(store, 0) == []
    assert (await store.put(envelope(), [entry(b"new")], store_ms=1000)).first_queue_offset == 0
    store.abandon()


async def _announce_nothing(_: Iterable[Topic] | None) -> None:
    pass


@pytest.mark.parametrize(("known", "stays"), [(1, True), (0, False), (5, True)])
async def test_a_topic_made_again_stays_when_the_deletion_before_is_confirmed_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int, stays: bool
) -> None:
    """A slave whose master died took over the table with the topic created again (1), perhaps one
    with a deletion that the log never got (5), or the previous one (0).
    """
    monkeypatch.setattr(message_store, "VISIBLE_WITHIN_S", 0.01)
    store = ReplicatedStore(tmp_path, segment_bytes=4000)
    store.start()
    await put(store, b"old")
    store.confirm(store.copies.end_offset)
    with pytest.raises(OSError, match="no replica has confirmed it yet"):
        await store.delete_topic(TOPIC, store_ms=1000)
    await store.close()
    store = ReplicatedStore(tmp_path, segment_bytes=4000)
    topics = Topics()
    topics.put(TopicConfig(topic=TOPIC, read_queues=1, write_queues=1), now_ms=1)
    topics.deletions = known
    offsets = CommittedOffsets()
    saver = TableSaver(store.table("x"), content=dict, change=lambda: 0)
    deletion = TopicDeletion(
        store,
        directory=TopicDirectory(
            topics, store.journaled_table("topics"), announce=_announce_nothing
        ),
        offsets=offsets,
        offset_saver=saver,
        long_polls=LongPolls(),
        traffic=Traffic({}, now_ms=0, day=1),
    )
    deletion.catch_up()
    assert topics.find(TOPIC) is not None, "nothing is deleted before it is confirmed"
    store.start(lambda topic, *_: deletion.arrived(topic))
    store.confirm(store.copies.end_offset)
    assert (topics.find(TOPIC) is not None) == stays
    assert topics.deletions == 1
    store.abandon()
