"""State that a killed process leaves to the next one: no power failure may undo what that builds
on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker_core.store.message_store import MessageStore
from tests.support.store_messages import entry, envelope

SEGMENT = 4000


def opened(folder: Path) -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT, flush="async", entries_per_file=8)
    store.start()
    return store


async def put(store: MessageStore, count: int) -> None:
    for n in range(count):
        await store.put(envelope(n % 3), [entry(b"x" * 100)], store_ms=1)


def files(folder: Path, part: str) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in (folder / part).rglob("*")
        if path.is_file() and path.name.isdigit()
    }


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_what_the_process_before_left_in_the_cache_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: bool
) -> None:
    store = opened(tmp_path)
    await put(store, 60)
    on_disk: dict[Path, bytes] = {}
    if checkpoint:
        await store.checkpoint()
        on_disk = files(tmp_path, "commitlog") | files(tmp_path, "consumequeue")
    await put(store, 60)
    for queue in store.queues:
        queue.flush()
    store.abandon()
    sync_to_disk = os.fdatasync

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file():
            on_disk[path] = path.read_bytes()
        sync_to_disk(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    store = opened(tmp_path)
    log = files(tmp_path, "commitlog")
    assert len(log) > 5
    assert log.items() <= on_disk.items(), "before anything is answered"
    await store.checkpoint()
    queues = files(tmp_path, "consumequeue")
    assert len(queues) > 9
    assert queues.items() <= on_disk.items()
    store.abandon()


async def test_a_start_syncs_no_segment_again_that_a_checkpoint_covers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    await put(store, 60)
    await store.close()
    synced: list[Path] = []
    monkeypatch.setattr(
        os,
        "fdatasync",
        lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()),
    )
    opened(tmp_path).abandon()
    log = files(tmp_path, "commitlog")
    assert [path for path in synced if path in log] == [max(log)]
