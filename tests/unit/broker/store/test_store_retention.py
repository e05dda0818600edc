"""Deletion of old segments: concurrent readers, failures and crashes in the middle of it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from broker_core.remoting.message import decode_messages
from broker_core.store import expiry
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import ReadStatus
from broker_core.store.replicated_store import ReplicatedStore
from broker_core.store.tables import JsonTable
from broker_core.tasks import spawn
from tests.support.store_messages import TOPIC, entry, envelope

SEGMENT = 4000
MESSAGES = 200


async def filled(folder: Path) -> MessageStore:
    """200 numbered messages in queue 0, over several segments and files of the consume queue."""
    store = MessageStore(folder, segment_bytes=SEGMENT, entries_per_file=8, flush="async")
    store.start()
    for n in range(MESSAGES):
        await store.put(envelope(), [entry(b"%03d" % n)], store_ms=n)
    return store


def reopened(folder: Path) -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT, entries_per_file=8, flush="async")
    store.start()
    return store


def check_all_from_the_oldest_on(store: MessageStore) -> int:
    """Check that every message from the oldest to the last exists; return the oldest one's
    offset.
    """
    oldest = store.reader.min_offset(TOPIC, 0)
    found = store.reader.read(TOPIC, 0, oldest, max_messages=999)
    bodies = [message.body for message in decode_messages(found.body, check_crc=True)]
    assert bodies == [b"%03d" % n for n in range(oldest, MESSAGES)]
    if oldest:
        below = store.reader.read(TOPIC, 0, oldest - 1, max_messages=9)
        assert below[:4] == (ReadStatus.TOO_SMALL, oldest, oldest, MESSAGES)
    return oldest


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "commitlog").iterdir())


def consume_queue_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "consumequeue" / TOPIC / "0").iterdir())


async def test_consume_queues_are_trimmed_with_the_log(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    await store.checkpoint()
    before = consume_queue_files(tmp_path)
    assert await store.delete_expired(before_ms=None, keep_bytes=8000) > 0
    oldest = check_all_from_the_oldest_on(store)
    after = consume_queue_files(tmp_path)
    assert after == before[-len(after) :]
    assert int(after[0]) == oldest // 8 * 160
    await store.close()


@pytest.mark.parametrize("keep_bytes", [1, 4001, 10_000, 20_000])
async def test_the_configured_bytes_are_kept_and_less_than_a_segment_more(
    tmp_path: Path, keep_bytes: int
) -> None:
    store = await filled(tmp_path)
    await store.delete_expired(before_ms=None, keep_bytes=keep_bytes)
    log = store.log
    kept = log.end_offset - log.first_offset
    assert kept >= keep_bytes or len(log.segments) == 1
    assert kept < keep_bytes + SEGMENT
    await store.close()


@pytest.mark.sockets
async def test_readers_go_on_while_files_are_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    await store.checkpoint()
    gate, delete = threading.Event(), expiry.delete_file

    def slow(path: Path) -> None:
        assert gate.wait(10)
        delete(path)

    monkeypatch.setattr(expiry, "delete_file", slow)
    deleting = spawn(store.delete_expired(before_ms=None, keep_bytes=8000), name="delete")
    await asyncio.sleep(0)
    assert check_all_from_the_oldest_on(store) > 0  # its file still exists, but not for readers
    assert store.log.first_offset == SEGMENT
    gate.set()
    assert await deleting > 1
    assert check_all_from_the_oldest_on(store) > SEGMENT / 130
    await store.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_segment_whose_file_is_gone_is_read_no_more_though_its_folder_was_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Otherwise its messages could neither be read nor skipped, forever."""
    store = await filled(tmp_path)
    await store.checkpoint()
    before, synced = segments(tmp_path), list[list[Path]]()

    def refuse(folder: Path) -> None:
        raise OSError(code, os.strerror(code))

    def sync(folder: Path) -> None:
        synced.append(segments(tmp_path))

    with monkeypatch.context() as patched:
        patched.setattr(expiry, "sync_folder", refuse)
        with pytest.raises(OSError, match=os.strerror(code)):
            await store.delete_expired(before_ms=None, keep_bytes=8000)
        assert segments(tmp_path) == before[1:]
        assert store.log.first_offset == SEGMENT
        assert check_all_from_the_oldest_on(store) > 0
        with pytest.raises(OSError, match=os.strerror(code)):
            await store.delete_expired(before_ms=None, keep_bytes=8000)
        assert segments(tmp_path) == before[1:]  # or it alone could be gone
        assert check_all_from_the_oldest_on(store) > 0
        patched.setattr(expiry, "sync_folder", sync)
        assert await store.delete_expired(before_ms=None, keep_bytes=8000) > 0
    assert synced[:2] == [before[1:], before[2:]]
    assert check_all_from_the_oldest_on(store) > SEGMENT / 130
    await store.close()


async def test_a_segment_that_cannot_be_deleted_is_kept_and_so_are_all_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a younger one alone were deleted, the next start would find a hole in the log."""
    store = await filled(tmp_path)
    before = segments(tmp_path)

    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(expiry, "delete_file", refuse)
        with pytest.raises(PermissionError):
            await store.delete_expired(before_ms=None, keep_bytes=8000)
    assert segments(tmp_path) == before
    assert check_all_from_the_oldest_on(store) == 0
    assert await store.delete_expired(before_ms=None, keep_bytes=8000) > 0
    store.abandon()
    again = reopened(tmp_path)
    assert check_all_from_the_oldest_on(again) > 0
    await again.close()


@pytest.mark.parametrize("noted", [0, 10])
async def test_offsets_that_were_answered_are_not_given_again_when_their_segment_is_deleted(
    tmp_path: Path, noted: int
) -> None:
    """The entries of the last messages of a queue were in memory only."""
    store = reopened(tmp_path)
    if noted:
        await store.put(envelope(1), [entry(b"old")] * noted, store_ms=1)
        await store.checkpoint()
    stored = await store.put(envelope(1), [entry(b"old")] * 5, store_ms=1)
    assert stored.first_queue_offset == noted
    for n in range(MESSAGES):
        await store.put(envelope(), [entry(b"%03d" % n)], store_ms=n)
    assert await store.delete_expired(before_ms=None, keep_bytes=1) > 1
    store.abandon()
    store = reopened(tmp_path)
    assert store.reader.min_offset(TOPIC, 1) == store.reader.end_offset(TOPIC, 1) == noted + 5
    stored = await store.put(envelope(1), [entry(b"new")], store_ms=MESSAGES)
    assert stored.first_queue_offset == noted + 5
    await store.close()


@pytest.mark.parametrize("wrong", [errno.ENOSPC, errno.EIO])
async def test_a_full_disk_keeps_nothing_from_being_deleted_a_broken_one_does(
    tmp_path: Path, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)

    def fail(self: JsonTable, *_: object) -> None:
        raise OSError(wrong, "no checkpoint")

    with monkeypatch.context() as patched:
        patched.setattr(JsonTable, "save", fail)
        if wrong == errno.ENOSPC:
            assert await store.delete_expired(before_ms=None, keep_bytes=8000) > 1
        else:
            with pytest.raises(OSError, match="no checkpoint"):
                await store.delete_expired(before_ms=None, keep_bytes=8000)
            assert check_all_from_the_oldest_on(store) == 0
    await store.close()


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_a_crash_before_the_consume_queues_are_trimmed(
    tmp_path: Path, checkpoint: bool
) -> None:
    store = await filled(tmp_path)
    if checkpoint:
        await store.checkpoint()
    store.abandon()
    for path in segments(tmp_path)[:3]:
        path.unlink()
    again = reopened(tmp_path)
    assert check_all_from_the_oldest_on(again) > 0
    assert again.recovery.rebuilt is not checkpoint
    await again.close()


async def test_a_queue_whose_messages_are_gone_goes_on_after_kills_while_all_are_rebuilt(
    tmp_path: Path,
) -> None:
    """Only its own files contain its offsets, also before the next checkpoint."""
    store = reopened(tmp_path)
    await store.put(envelope(1), [entry(b"old")] * 11, store_ms=1)
    for n in range(MESSAGES):
        await store.put(envelope(), [entry(b"%03d" % n)], store_ms=n)
    await store.checkpoint()
    assert await store.delete_expired(before_ms=None, keep_bytes=1) > 1
    store.abandon()
    JsonTable(tmp_path / "checkpoint.json").delete()
    for _ in range(3):
        store = reopened(tmp_path)
        assert store.recovery.rebuilt
        assert store.reader.min_offset(TOPIC, 1) == store.reader.end_offset(TOPIC, 1) == 11
        check_all_from_the_oldest_on(store)
        store.abandon()
    store = reopened(tmp_path)
    assert (
        await store.put(envelope(1), [entry(b"new")], store_ms=MESSAGES)
    ).first_queue_offset == 11
    await store.close()
    store = reopened(tmp_path)
    assert not store.recovery.rebuilt
    assert store.reader.end_offset(TOPIC, 1) == 12
    await store.close()


async def test_a_power_cut_that_brings_segments_back(tmp_path: Path) -> None:
    """Deletions may not be on disk yet; the consume queues may be further than the log."""
    store = await filled(tmp_path)
    await store.checkpoint()
    shutil.copytree(tmp_path / "commitlog", tmp_path / "before")
    await store.delete_expired(before_ms=None, keep_bytes=8000)
    await store.checkpoint()
    store.abandon()
    shutil.rmtree(tmp_path / "commitlog")
    (tmp_path / "before").rename(tmp_path / "commitlog")
    again = reopened(tmp_path)
    check_all_from_the_oldest_on(again)
    put = await again.put(envelope(), [entry(b"new")], store_ms=MESSAGES)
    assert put.first_queue_offset == MESSAGES
    await again.close()


async def test_messages_that_wait_for_replicas_are_kept_until_they_were_visible(
    tmp_path: Path,
) -> None:
    store = ReplicatedStore(tmp_path, segment_bytes=SEGMENT)
    store.start()
    ends = []
    for n in range(MESSAGES):
        stored = await store.put(envelope(), [entry(b"%03d" % n)], store_ms=n)
        ends.append(stored.log_end)
    assert await store.delete_expired(before_ms=None, keep_bytes=1) == 0
    store.confirm(ends[99])
    assert await store.delete_expired(before_ms=None, keep_bytes=1) > 0
    first = store.log.first_offset
    assert ends[99] - SEGMENT < first <= ends[99]
    store.confirm(ends[-1])
    assert check_all_from_the_oldest_on(store) <= 99
    await store.delete_expired(before_ms=None, keep_bytes=1)
    assert len(store.log.segments) == 1
    await store.close()
