from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import decode_message, decode_messages
from broker_core.store import message_store
from broker_core.store.commit_log import CommitLog, Sync
from broker_core.store.entry_code import tag_hash_of
from broker_core.store.group_commit import GroupCommit
from broker_core.store.message_store import Flush, MessageStore
from broker_core.store.pending import Stored
from broker_core.store.reader import ReadResult, ReadStatus
from broker_core.store.recovery import Checkpoint
from tests.support.store_messages import TOPIC, append_to, entry, envelope, stored

SEGMENT = 4000


def opened(folder: Path, *, flush: Flush = "sync") -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT, flush=flush, entries_per_file=8)
    store.start()
    return store


async def put(store: MessageStore, *bodies: bytes, queue_id: int = 0, at_ms: int = 1000) -> Stored:
    return await store.put(envelope(queue_id), [entry(b) for b in bodies], store_ms=at_ms)


def read(store: MessageStore, offset: int, *, queue_id: int = 0, count: int = 100) -> ReadResult:
    return store.reader.read(TOPIC, queue_id, offset, max_messages=count)


def bodies(store: MessageStore, offset: int = 0, *, queue_id: int = 0) -> list[bytes]:
    found = read(store, offset, queue_id=queue_id)
    return [m.body for m in decode_messages(found.body, check_crc=True)]


@pytest.mark.parametrize("flush", ["sync", "async"])
async def test_what_was_put_is_read_in_order_and_after_a_restart(
    tmp_path: Path, flush: Flush
) -> None:
    store = opened(tmp_path, flush=flush)
    assert (await put(store, b"a", b"b")).first_queue_offset == 0
    await put(store, b"x", queue_id=1)
    assert (await put(store, b"c")).first_queue_offset == 2
    assert bodies(store) == [b"a", b"b", b"c"]
    await store.close()
    store = opened(tmp_path, flush=flush)
    assert bodies(store) == [b"a", b"b", b"c"]
    assert bodies(store, queue_id=1) == [b"x"]
    assert store.recovery.replayed == 0
    assert (await put(store, b"d")).first_queue_offset == 3
    assert store.recovery.dropped.size == 0
    await store.close()


async def test_every_status_of_a_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert read(store, 0) == (ReadStatus.NO_MESSAGE, 0, 0, 0, b"", 0)
    await put(store, b"a", b"b", b"c")
    found = read(store, 1, count=1)
    assert found[:4] == (ReadStatus.FOUND, 2, 0, 3)
    assert found.messages == 1
    assert read(store, 3)[:4] == (ReadStatus.END, 3, 0, 3)
    assert read(store, 4)[:4] == (ReadStatus.TOO_BIG, 3, 0, 3)
    assert read(store, -1)[:4] == (ReadStatus.TOO_SMALL, 0, 0, 3)
    await store.close()


async def test_a_read_is_limited_in_bytes_but_gives_one_message(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await put(store, b"a" * 500, b"b" * 500, b"c" * 500)
    for limit, messages in ((-5, 1), (0, 1), (1, 1), (1300, 2), (9999, 3)):
        found = store.reader.read(TOPIC, 0, 0, max_messages=9, max_bytes=limit)
        assert (found.messages, found.next_offset) == (messages, messages)
    await store.close()


async def test_a_filtered_read_moves_past_what_it_skips(tmp_path: Path) -> None:
    store = opened(tmp_path)
    entries = [entry(tag="red"), entry(tag="blue"), entry(), entry(tag="red"), entry(tag="blue")]
    await store.put(envelope(), entries, store_ms=1)
    red = frozenset({java_hash("red")})
    found = store.reader.read(TOPIC, 0, 0, max_messages=9, tag_hashes=red)
    assert [m.queue_offset for m in decode_messages(found.body)] == [0, 3]
    assert found.next_offset == 5
    first = store.reader.read(TOPIC, 0, 0, max_messages=1, tag_hashes=red)
    assert first.next_offset == 3
    none = store.reader.read(TOPIC, 0, 4, max_messages=9, tag_hashes=red)
    assert (none.status, none.next_offset) == (ReadStatus.NO_MATCH, 5)
    await store.close()


def test_tag_hashes_are_javas() -> None:
    assert tag_hash_of(entry(tag="tagA").properties) == 3552231
    assert tag_hash_of(b"TAGS\x01tagA") == 3552231
    assert tag_hash_of(b"NOTAGS\x01x\x02KEYS\x01TAGS\x02") == 0


async def test_arrivals_are_announced_when_they_can_be_read(tmp_path: Path) -> None:
    store = MessageStore(tmp_path, segment_bytes=SEGMENT)
    told: list[tuple[Topic, int, frozenset[int], int]] = []
    store.start(lambda t, q, tags: told.append((t, q, tags, store.reader.end_offset(t, q))))
    await store.put(envelope(3), [entry(tag="tagA"), entry()], store_ms=1)
    assert told == [(TOPIC, 3, frozenset({3552231, 0}), 2)]
    await store.close()


@pytest.mark.sockets
async def test_one_sync_serves_all_waiting_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    syncs, gate = [], threading.Event()
    run = Sync.run

    def counted(sync: Sync) -> None:
        gate.wait(10)
        syncs.append(sync.end)
        run(sync)

    monkeypatch.setattr(Sync, "run", counted)
    puts = [asyncio.create_task(put(store, b"x")) for _ in range(5)]  # noqa: TID251
    await asyncio.sleep(0.01)
    late = [asyncio.create_task(put(store, b"y")) for _ in range(3)]  # noqa: TID251
    await asyncio.sleep(0.01)
    assert store.reader.end_offset(TOPIC, 0) == 0  # invisible before it is on disk
    gate.set()
    offsets = [(await task).first_queue_offset for task in (*puts, *late)]
    assert offsets == list(range(8))
    assert len(syncs) == 2
    await store.close()


async def test_an_answered_message_was_synced_also_over_the_ends_of_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill cannot show this, but a power failure would: the files as of their sync."""
    synced: dict[int, bytes] = {}
    sync_to_disk = os.fdatasync

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        of_log = path.parent.name == "commitlog"
        content = path.read_bytes() if of_log else b""
        sync_to_disk(descriptor)
        if of_log:
            synced[int(path.name)] = content

    monkeypatch.setattr(os, "fdatasync", noted)
    store = opened(tmp_path)

    async def send(sender: int) -> None:
        for n in range(20):
            body = b"%d %d " % (sender, n) + b"x" * 300
            (place,) = (await put(store, body, queue_id=sender)).physical_offsets
            start = max(start for start in synced if start <= place)
            assert decode_message(synced[start], place - start, check_crc=True).body == body

    await asyncio.gather(*map(send, range(4)))
    assert len(synced) > 5
    await store.close()


async def test_a_failed_sync_refuses_sends_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    await put(store, b"good")

    def broken(sync: Sync) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Sync, "run", broken)
        with pytest.raises(OSError, match="Input/output"):
            await put(store, b"bad")
    with pytest.raises(OSError, match="Input/output"):
        await put(store, b"bad")
    assert bodies(store) == [b"good"]
    with pytest.raises(OSError, match="Input/output"):
        await store.close()
    store = opened(tmp_path)
    assert bodies(store)[0] == b"good"
    await store.close()


async def test_a_crash_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for n in range(50):
        await put(store, b"%d" % n, queue_id=n % 2)
        if n == 30:
            await store.checkpoint()
    store.abandon()
    store = opened(tmp_path)
    assert store.recovery.replayed == 19
    assert not store.recovery.rebuilt
    assert bodies(store) == [b"%d" % n for n in range(0, 50, 2)]
    assert bodies(store, queue_id=1) == [b"%d" % n for n in range(1, 50, 2)]
    await store.close()


@pytest.mark.parametrize("lost", ["consumequeue", "checkpoint.json", "consumequeue/orders/1"])
async def test_lost_consume_queues_are_rebuilt(tmp_path: Path, lost: str) -> None:
    store = opened(tmp_path)
    for n in range(50):
        await put(store, b"%d" % n, queue_id=n % 2)
    await store.close()
    path = tmp_path / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        for name in (path, path.with_name("checkpoint.json.bak")):
            name.unlink(missing_ok=True)
    store = opened(tmp_path)
    assert store.recovery.rebuilt
    assert bodies(store, queue_id=1) == [b"%d" % n for n in range(1, 50, 2)]
    assert (await put(store, b"next", queue_id=1)).first_queue_offset == 25
    await store.close()


async def test_a_queue_that_does_not_continue_is_rebuilt_with_all_others(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await put(store, b"a")
    await put(store, b"b", queue_id=1)
    await store.checkpoint()
    await put(store, b"c", queue_id=1)
    store.abandon()
    shutil.rmtree(tmp_path / "consumequeue" / "orders" / "1")
    table = tmp_path / "checkpoint.json"
    table.write_text(table.read_text().replace('"entries": 2', '"entries": 1'))
    store = opened(tmp_path)
    assert store.recovery.rebuilt
    assert bodies(store, queue_id=1) == [b"b", b"c"]
    await store.close()


async def test_a_failed_checkpoint_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    await put(store, b"a")

    def broken(path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("broker_core.store.message_store.sync_file", broken)
        with pytest.raises(OSError, match="Input/output"):
            await store.checkpoint()
    synced: list[Path] = []
    monkeypatch.setattr("broker_core.store.message_store.sync_file", synced.append)
    await store.checkpoint()
    assert [path.parent.name for path in synced if path.is_file()] == ["0"]
    await store.close()


async def test_what_a_log_lost_before_its_checkpoint_keeps_its_offset(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await put(store, b"a", b"b")
    await put(store, b"x", queue_id=1)
    await store.close()
    log = tmp_path / "commitlog" / ("0" * 20)
    os.truncate(log, store.recovery.end_offset + len(log.read_bytes().rstrip(b"\0")) - 3)
    store = opened(tmp_path)
    assert store.recovery.lost_bytes > 0
    assert bodies(store) == [b"a", b"b"]
    assert read(store, 0, queue_id=1).status is ReadStatus.DAMAGED
    await put(store, b"c")
    await put(store, b"y", queue_id=1)
    store.abandon()
    store = opened(tmp_path)
    assert bodies(store) == [b"a", b"b", b"c"]
    assert read(store, 0, queue_id=1)[:2] == (ReadStatus.DAMAGED, 1)
    assert read(store, 1, queue_id=1).messages == 1
    await store.close()


async def test_offsets_by_time_also_when_the_clock_was_set_back(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for at_ms in (1000, 2000, 1500, 3000):
        await put(store, b"x", at_ms=at_ms)
    assert [store.reader.offset_at(TOPIC, 0, t) for t in (0, 1000, 1001, 2000, 2500, 3000)] == [
        0, 0, 1, 1, 3, 3,
    ]  # fmt: skip
    assert store.reader.offset_at(TOPIC, 0, 3001) == 4
    assert store.reader.offset_at(TOPIC, 9, 0) == 0
    assert store.reader.store_ms(TOPIC, 0, 2) == 2000
    assert store.reader.store_ms(TOPIC, 0, 4) is None
    await store.close()


async def test_retention_moves_the_oldest_offset_and_survives_rebuilding(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await put(store, b"only", queue_id=1)
    for n in range(100):
        await put(store, b"%03d" % n)
    assert await store.delete_expired(before_ms=None, keep_bytes=None) == 0
    assert await store.delete_expired(before_ms=None, keep_bytes=5000) > 0
    oldest = store.reader.min_offset(TOPIC, 0)
    assert 0 < oldest < 100
    assert bodies(store, oldest)[0] == b"%03d" % oldest
    assert read(store, 0)[:3] == (ReadStatus.TOO_SMALL, oldest, oldest)
    assert store.reader.min_offset(TOPIC, 1) == store.reader.end_offset(TOPIC, 1) == 1
    await store.close()
    (tmp_path / "checkpoint.json").unlink()
    (tmp_path / "checkpoint.json.bak").unlink(missing_ok=True)
    store = opened(tmp_path)
    assert store.recovery.rebuilt
    assert (store.reader.min_offset(TOPIC, 0), store.reader.end_offset(TOPIC, 0)) == (oldest, 100)
    assert store.reader.end_offset(TOPIC, 1) == 1  # offsets are never reused
    assert (await put(store, b"new", queue_id=1)).first_queue_offset == 1
    await store.close()


async def test_retention_by_age_keeps_the_last_segment(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for n in range(100):
        await put(store, b"%03d" % n)
    segments = sorted((tmp_path / "commitlog").iterdir())
    os.utime(segments[0], (1, 1))
    assert await store.delete_expired(before_ms=2000, keep_bytes=None) == 1
    assert await store.delete_expired(before_ms=1 << 60, keep_bytes=None) == len(segments) - 2
    assert bodies(store, store.reader.min_offset(TOPIC, 0))[-1] == b"099"
    await store.close()


async def test_a_put_larger_than_a_segment_stores_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(ValueError, match="bytes: at most"):
        await put(store, b"x" * SEGMENT)
    await put(store, b"y")
    assert bodies(store) == [b"y"]
    await store.close()


def test_a_jump_of_queue_offsets_counts_as_damage(tmp_path: Path) -> None:
    """A head of an earlier version has no checksum; a damaged one does not continue its queue."""
    MessageStore(tmp_path, segment_bytes=SEGMENT).abandon()
    log = CommitLog(tmp_path / "commitlog", segment_bytes=SEGMENT)
    log.open_at(0)
    append_to(log, [stored(offset=0), stored(offset=2)])
    size = len(stored())
    log.close()
    with capture_logs() as logs:
        store = MessageStore(tmp_path, segment_bytes=SEGMENT)
    assert [read(store, offset).status.name for offset in (0, 1, 2)] == [
        "FOUND", "DAMAGED", "FOUND",
    ]  # fmt: skip
    [line] = [line for line in logs if line["event"].startswith("damaged messages")]
    assert line["reason"] == (
        "the log has no message of queue 0 of orders before offset 2, where 1 is next"
    )
    assert (line["position"], line["first_offset"], line["messages"]) == (size, 1, 1)
    store.abandon()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("orderlane-store 1\n")
    (tmp_path / "commitlog").touch()
    with pytest.raises(StoreError, match="/commitlog cannot be used: Not a directory"):
        MessageStore(tmp_path, segment_bytes=SEGMENT)


def test_put_needs_start(tmp_path: Path) -> None:
    store = MessageStore(tmp_path, segment_bytes=SEGMENT)
    with pytest.raises(RuntimeError, match="start"):
        asyncio.run(put(store, b"x"))
    store.abandon()


async def test_a_checkpoint_speaks_of_nothing_that_is_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``flush="async"`` messages are visible before; a power failure then looks like a
    loss.
    """
    made: list[GroupCommit] = []
    spoken_of: list[int] = []

    class Commit(GroupCommit):
        """Adds another message after the first wait."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)
            self.waited = False

        async def wait(self, end: int) -> None:
            await super().wait(end)
            if not self.waited:
                self.waited = True
                await put(store, b"b")

    class Noted(Checkpoint):
        def to_table(self) -> dict[str, Any]:
            (commit,) = made
            spoken_of.append(self.physical - commit.synced_offset)
            return super().to_table()

    monkeypatch.setattr(message_store, "GroupCommit", Commit)
    monkeypatch.setattr(message_store, "Checkpoint", Noted)
    store = opened(tmp_path, flush="async")
    await put(store, b"a")
    await store.checkpoint()

    assert spoken_of == [0]
    store.abandon()
