"""A sector that the disk cannot read is damage like any other: it costs what it hits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.store import index_repair
from broker_core.store.check import check_store
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import ReadStatus
from tests.support.bad_sectors import break_sector
from tests.support.store_messages import TOPIC, entry, envelope

COUNT = 60
SECTOR = 4096
BODY_BYTES = 900
BEGIN, END = 3 * SECTOR, 4 * SECTOR


async def written(folder: Path) -> list[int]:
    """Write messages; return their places in the log."""
    store = MessageStore(folder, flush="async", segment_bytes=128 * 1024)
    store.start()
    places: list[int] = []
    for number in range(COUNT):
        one = entry(b"%03d" % number * (BODY_BYTES // 3), key=f"key-{number}")
        places += (await store.put(envelope(), [one], store_ms=1)).physical_offsets
    await store.close()
    return places


def hit(places: list[int]) -> set[int]:
    """Return the messages that have bytes in the bad sector."""
    ends = [*places[1:], places[-1] + 2000]
    both = enumerate(zip(places, ends, strict=True))
    return {number for number, (start, end) in both if start < END and end > BEGIN}


async def opened(folder: Path) -> MessageStore:
    store = MessageStore(folder, flush="async", segment_bytes=128 * 1024)
    store.start()
    return store


@pytest.mark.parametrize("at_once", [True, False])
async def test_all_other_messages_of_the_queue_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    places = await written(tmp_path)
    store = await opened(tmp_path)
    break_sector(monkeypatch, tmp_path / "commitlog" / f"{0:020d}", BEGIN, END)
    if not at_once:
        monkeypatch.setattr(index_repair, "AT_ONCE_BYTES", 0)
    found: set[int] = set()
    damaged: set[int] = set()
    at = 0
    with capture_logs():
        while at < COUNT:
            read = store.reader.read(TOPIC, 0, at, max_messages=8)
            if read.status is ReadStatus.EXAMINED:
                await asyncio.sleep(0.01)
                continue
            (damaged if read.status is ReadStatus.DAMAGED else found).update(
                range(at, read.next_offset)
            )
            at = read.next_offset
    assert damaged == hit(places)
    assert found == set(range(COUNT)) - damaged
    assert "the disk cannot read it" in str(store.reader.damaged.find(TOPIC, 0, min(damaged)))
    await store.close()


async def test_a_sector_that_is_read_again_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = await written(tmp_path)
    store = await opened(tmp_path)
    lost = min(hit(places))
    with monkeypatch.context() as patch, capture_logs():
        break_sector(patch, tmp_path / "commitlog" / f"{0:020d}", BEGIN, END)
        read = store.reader.read(TOPIC, 0, lost, max_messages=1)
        assert read.status is ReadStatus.DAMAGED
    assert store.reader.read(TOPIC, 0, lost, max_messages=1).status is ReadStatus.FOUND
    await store.close()


async def test_all_other_keys_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = await written(tmp_path)
    store = MessageStore(tmp_path, flush="async", segment_bytes=128 * 1024)
    index = store.key_indexer()
    store.start()
    break_sector(monkeypatch, tmp_path / "commitlog" / f"{0:020d}", BEGIN, END)
    found: set[int] = set()
    with capture_logs():
        index.start()
        for number in range(COUNT):
            search = index.find(TOPIC, f"key-{number}", begin_ms=0, end_ms=9, timeout_s=5)
            found |= {number async for _ in search}
    assert found == set(range(COUNT)) - hit(places)
    await index.close()
    await store.close()


async def test_a_check_names_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = await written(tmp_path)
    break_sector(monkeypatch, tmp_path / "commitlog" / f"{0:020d}", BEGIN, END)
    report = check_store(tmp_path)
    assert report.messages == COUNT - len(hit(places))
    problem = next(each for each in report.problems if each.kind == "log")
    assert problem.position == places[min(hit(places))]
    assert "the disk cannot read it" in problem.reason
