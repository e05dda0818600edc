"""Topics deleted from a store: their messages never reappear, whatever a crash leaves."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.remoting.message import decode_messages
from broker_core.store.commit_log import Sync
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.deletions import DELETIONS
from broker_core.store.message_store import Flush, MessageStore
from broker_core.store.pending import Kept, Stored
from broker_core.store.reader import ReadStatus
from tests.support.store_messages import TOPIC, entry, envelope

OTHER = Topic("refunds")
SEGMENT = 4000


def opened(folder: Path, *, flush: Flush = "sync") -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT, flush=flush, entries_per_file=8)
    store.start()
    return store


async def put(store: MessageStore, *bodies: bytes, topic: Topic = TOPIC, queue_id: int = 0) -> int:
    entries = [entry(b) for b in bodies]
    return (await store.put(envelope(queue_id, topic), entries, store_ms=1000)).first_queue_offset


def bodies(store: MessageStore, *, topic: Topic = TOPIC, queue_id: int = 0) -> list[bytes]:
    offset = store.reader.min_offset(topic, queue_id)
    found = store.reader.read(topic, queue_id, offset, max_messages=1000)
    return [m.body for m in decode_messages(found.body, check_crc=True)]


async def filled(folder: Path, *, flush: Flush = "sync") -> MessageStore:
    """Return two queues of a topic and one of another; the first has several files."""
    store = opened(folder, flush=flush)
    for n in range(20):
        await put(store, b"old %d" % n)
    await put(store, b"old", queue_id=1)
    await put(store, b"kept", topic=OTHER)
    return store


def lose_checkpoint(folder: Path) -> None:
    for path in folder.glob("checkpoint.json*"):
        path.unlink()


async def _no_checkpoint(store: MessageStore) -> None:
    """Replaces the checkpoint that ends a deletion: as if killed before."""


def assert_begun_anew(store: MessageStore, *expected: bytes) -> None:
    assert bodies(store) == list(expected)
    assert store.reader.end_offset(TOPIC, 0) == len(expected)
    assert store.reader.end_offset(TOPIC, 1) == 0
    assert bodies(store, topic=OTHER) == [b"kept"]


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("replicated", [False, True])
async def test_puts_before_a_deletion_are_before_it_in_the_log(
    tmp_path: Path, flush: Flush, replicated: bool
) -> None:
    """A delayed message of the topic, in a topic of its own, would belong to the next life."""

    async def kept(_: int) -> Kept:
        return Kept.WELL

    store = MessageStore(tmp_path, segment_bytes=SEGMENT, flush=flush, entries_per_file=8)
    store.start(replicas=kept if replicated else None)
    await put(store, b"old")
    outcomes: list[Stored | Exception] = []
    for topic in (OTHER, TOPIC):
        store.put_soon(envelope(0, topic), [entry()], outcomes.append, store_ms=1)
    await store.delete_topic(TOPIC, store_ms=2)
    found = store.reader.read(DELETIONS, 0, 0, max_messages=1)
    (deletion,) = decode_messages(found.body)
    places = [each.physical_offsets[0] for each in outcomes if isinstance(each, Stored)]
    assert len(places) == 2
    assert max(places) < deletion.physical_offset
    assert bodies(store) == []
    await store.close()


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("end", ["closed", "killed", "checkpoint lost"])
async def test_a_deleted_topic_begins_at_0_and_its_messages_stay_gone(
    tmp_path: Path, flush: Flush, end: str
) -> None:
    store = await filled(tmp_path, flush=flush)
    await store.delete_topic(TOPIC, store_ms=2000)
    assert store.reader.read(TOPIC, 0, 0, max_messages=1).status is ReadStatus.NO_MESSAGE
    assert_begun_anew(store)
    assert await put(store, b"new 0", b"new 1") == 0
    for _ in range(2):
        if end == "closed":
            await store.close()
        else:
            await store.sync()
            store.abandon()
        if end == "checkpoint lost":
            lose_checkpoint(tmp_path)
        store = opened(tmp_path, flush=flush)
        assert store.recovery.rebuilt == (end == "checkpoint lost")
        assert not store.recovery.dropped
        assert_begun_anew(store, b"new 0", b"new 1")
    assert await put(store, b"new 2") == 2
    store.abandon()
    assert not list((tmp_path / "consumequeue").glob("*.dropped"))


@pytest.mark.parametrize("left", ["the folder", "the folder renamed", "nothing"])
@pytest.mark.parametrize("with_checkpoint", [True, False])
async def test_a_start_ends_a_deletion_that_a_crash_broke_off(
    tmp_path: Path, left: str, with_checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the record: the queues' folder is unchanged, renamed, or deleted."""
    store = await filled(tmp_path)
    if with_checkpoint:
        await store.checkpoint()
    for queue in store.queues:
        queue.flush()
    await put(store, b"old, behind the checkpoint")
    with monkeypatch.context() as patched:
        patched.setattr(MessageStore, "checkpoint", _no_checkpoint)
        if left != "nothing":
            patched.setattr(ConsumeQueues, "delete_dropped", lambda queues: None)
        await store.delete_topic(TOPIC, store_ms=2000)
    store.abandon()
    if left == "the folder":
        (renamed,) = (tmp_path / "consumequeue").glob("*.dropped")
        renamed.rename(tmp_path / "consumequeue" / TOPIC)
    for _ in range(2):
        store = opened(tmp_path)
        assert_begun_anew(store)
        store.abandon()
    store = opened(tmp_path)
    assert await put(store, b"new") == 0
    store.abandon()
    store = opened(tmp_path)
    assert_begun_anew(store, b"new")
    assert not list((tmp_path / "consumequeue").glob("*.dropped"))
    await store.close()


async def test_what_was_made_deleted_and_made_again_since_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    await put(store, b"kept", topic=OTHER)
    await store.checkpoint()
    for n in range(3):
        assert await put(store, b"%d" % n, b"more") == 0
        with monkeypatch.context() as patched:
            patched.setattr(MessageStore, "checkpoint", _no_checkpoint)
            await store.delete_topic(TOPIC, store_ms=2000)
    await put(store, b"last")
    store.abandon()
    store = opened(tmp_path)
    assert_begun_anew(store, b"last")
    await store.close()


async def test_retention_may_take_the_messages_and_then_the_record(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    await store.delete_topic(TOPIC, store_ms=2000)
    await put(store, b"new 0")
    for n in range(200):
        await put(store, b"%d" % n, topic=OTHER, queue_id=1)
    for keep in (20_000, 4000):
        await store.delete_expired(before_ms=None, keep_bytes=keep)
        await store.close()
        lose_checkpoint(tmp_path)
        store = opened(tmp_path)
        assert store.recovery.rebuilt
        assert store.reader.end_offset(TOPIC, 0) == 1
        assert store.reader.end_offset(TOPIC, 1) == 0
    assert store.reader.min_offset(TOPIC, 0) == 1
    assert await put(store, b"new 1") == 1
    await store.close()


async def test_nothing_goes_to_a_topic_before_its_deletion_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    synced = asyncio.Event()
    loop = asyncio.get_running_loop()
    run = Sync.run

    def noted(sync: Sync) -> None:
        run(sync)
        loop.call_soon_threadsafe(synced.set)

    monkeypatch.setattr(Sync, "run", noted)
    late = asyncio.create_task(put(store, b"sent before"))  # noqa: TID251
    await asyncio.sleep(0)
    deletion = asyncio.create_task(store.delete_topic(TOPIC, store_ms=2000))  # noqa: TID251
    await asyncio.sleep(0)
    assert not synced.is_set()
    with pytest.raises(OSError, match="is being deleted"):
        await put(store, b"refused")
    assert await put(store, b"other", topic=OTHER, queue_id=1) == 0
    assert await late == 20
    deletion.cancel()  # the caller is gone; the record is not
    await asyncio.gather(deletion, return_exceptions=True)
    await store.sync()
    assert await put(store, b"new") == 0
    store.abandon()
    store = opened(tmp_path)
    assert_begun_anew(store, b"new")
    await store.close()


async def test_a_deletion_that_cannot_be_written_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    with monkeypatch.context() as patched:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr("broker_core.store.commit_log.write_at", full)
        with pytest.raises(OSError, match="No space"):
            await store.delete_topic(TOPIC, store_ms=2000)
    assert await put(store, b"next") == 20
    assert len(bodies(store)) == 21
    await store.close()


async def test_files_that_cannot_be_moved_away_keep_the_topic_closed_until_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise new entries would follow old ones."""
    store = await filled(tmp_path)
    await store.checkpoint()
    with monkeypatch.context() as patched:

        def refused(path: Path, target: Path) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        patched.setattr(Path, "rename", refused)
        with capture_logs() as logs:
            await store.delete_topic(TOPIC, store_ms=2000)
    assert any("files of a deleted topic remain" in line["event"] for line in logs)
    assert_begun_anew(store)
    with pytest.raises(OSError, match="is being deleted"):
        await put(store, b"refused")
    assert await put(store, b"other", topic=OTHER, queue_id=1) == 0
    await store.close()
    store = opened(tmp_path)
    assert_begun_anew(store)
    assert await put(store, b"new") == 0
    await store.close()


async def test_a_folder_that_cannot_go_ends_the_start_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    await store.checkpoint()
    monkeypatch.setattr(MessageStore, "checkpoint", _no_checkpoint)
    saved = tmp_path.with_name("saved")
    shutil.copytree(tmp_path / "consumequeue", saved)
    await store.delete_topic(TOPIC, store_ms=2000)
    store.abandon()
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.copytree(saved, tmp_path / "consumequeue")

    def refused(path: Path, target: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(StoreError, match=f"consumequeue/{TOPIC} cannot be used: Read-only"):
        opened(tmp_path)
