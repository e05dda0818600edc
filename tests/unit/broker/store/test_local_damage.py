"""Damage of one message or index entry costs that message or nothing, whatever else is broken."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.errors import StoreError
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import decode_messages
from broker_core.store import index_repair
from broker_core.store.check import check_store
from broker_core.store.consume_queue import ENTRY
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import ReadStatus
from broker_core.store.tables import JsonTable
from tests.support.flipped_files import flip, zero
from tests.support.store_messages import TOPIC, entry, envelope

SEGMENT = 4000
COUNT = 40


def opened(folder: Path) -> MessageStore:
    return MessageStore(folder, segment_bytes=SEGMENT, flush="async", entries_per_file=1000)


async def written(folder: Path, *, count: int = COUNT) -> list[int]:
    """Write messages to two queues in turn; return their places in the log."""
    store = opened(folder)
    store.start()
    places: list[int] = []
    for number in range(count):
        stored = await store.put(
            envelope(number % 2), [entry(body(number), key="k", tag="red")], store_ms=number
        )
        places += stored.physical_offsets
    await store.close()
    return places


def body(number: int) -> bytes:
    return b"%06d" % number * 20


def segment_of(folder: Path, place: int) -> tuple[Path, int]:
    paths = [path for path in (folder / "commitlog").iterdir() if path.name.isdigit()]
    path = max(path for path in paths if int(path.name) <= place)
    return path, place - int(path.name)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_all(store: MessageStore) -> tuple[dict[int, bytes], set[int]]:
    """Return bodies of the messages that are delivered, by number, and the numbers of others."""
    found: dict[int, bytes] = {}
    damaged: set[int] = set()
    for queue_id in (0, 1):
        at = 0
        while True:
            read = store.reader.read(TOPIC, queue_id, at, max_messages=7)
            if read.status is ReadStatus.END:
                break
            if read.status is ReadStatus.DAMAGED:
                damaged |= {2 * each + queue_id for each in range(at, read.next_offset)}
            for message in decode_messages(read.body):
                found[2 * message.queue_offset + queue_id] = message.body
            assert read.next_offset > at
            at = read.next_offset
    return found, damaged


def check_all_but(store: MessageStore, lost: set[int], *, count: int = COUNT) -> None:
    found, damaged = read_all(store)
    assert damaged == lost
    assert found == {number: body(number) for number in range(count) if number not in lost}


#: Bytes of a record: of its length, magic, queue offset, place, topic's length, body, checksum.
PARTS = {"length": 1, "magic": 5, "offset": 27, "place": 35, "flags": 38, "body": 100, "sum": -5}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("victim", [0, COUNT - 1])
@pytest.mark.parametrize("index", ["index kept", "index lost"])
async def test_one_damaged_message(tmp_path: Path, part: str, victim: int, index: str) -> None:
    places = await written(tmp_path)
    at = PARTS[part]
    if at < 0:
        at += places[1] - places[0]  # all messages have the same size
    path, position = segment_of(tmp_path, places[victim])
    flip(position + at, 0x21)(path)
    if index == "index lost":
        for file in (tmp_path / "consumequeue").rglob("0*"):
            if file.is_file():
                file.unlink()
    with capture_logs():
        store = opened(tmp_path)
    check_all_but(store, {victim})
    store.start()
    for queue_id in (0, 1):
        before = store.reader.end_offset(TOPIC, queue_id)
        stored = await store.put(envelope(queue_id), [entry(b"next")], store_ms=99)
        assert stored.first_queue_offset == before
    await store.close()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("index", ["index kept", "index as of the checkpoint", "index lost"])
async def test_the_last_message_of_a_queue_is_damaged_after_a_checkpoint(
    tmp_path: Path, part: str, index: str
) -> None:
    """Messages of another queue follow. The offset is not used again, and the loss is reported."""
    store = opened(tmp_path)
    store.start()
    numbers = [*range(36), 36, 38, 40, 42]  # even ones are in queue 0
    places: list[int] = []
    for number in numbers:
        stored = await store.put(
            envelope(number % 2), [entry(body(number), key="k", tag="red")], store_ms=number
        )
        places += stored.physical_offsets
        if number == 20:
            await store.checkpoint()
            kept = {path: path.read_bytes() for path in (tmp_path / "consumequeue").rglob("0*/0*")}
    store.abandon()
    at = PARTS[part]
    path, position = segment_of(tmp_path, places[35])
    flip(position + (at if at >= 0 else at + places[1] - places[0]), 0x21)(path)
    if index == "index as of the checkpoint":
        for file, content in kept.items():
            if file.is_file():
                file.write_bytes(content)
    elif index == "index lost":
        shutil.rmtree(tmp_path / "consumequeue")
    with capture_logs():
        store = opened(tmp_path)
    found, damaged = read_all(store)
    assert (set(found), damaged) == ({*numbers} - {35}, {35})
    assert [(run.queue_id, run.first, run.end) for run in store.recovery.damaged] == [(1, 17, 18)]
    store.start()
    stored = await store.put(envelope(1), [entry(b"next")], store_ms=99)
    assert stored.first_queue_offset == 18
    await store.close()


async def test_a_zeroed_sector_loses_its_messages_and_no_others(tmp_path: Path) -> None:
    places = await written(tmp_path)
    path, position = segment_of(tmp_path, places[10])
    zero(position - position % 512, 1024)(path)
    begin = places[10] - position % 512
    ends = [*places[1:], places[-1] + 1]
    lost = {
        number
        for number, (place, end) in enumerate(zip(places, ends, strict=True))
        if place < begin + 1024 and begin < end
    }
    for file in (tmp_path / "consumequeue").rglob("0*"):
        if file.is_file():
            file.unlink()
    with capture_logs():
        store = opened(tmp_path)
    check_all_but(store, lost)
    store.abandon()


@pytest.mark.parametrize("field", [0, 7, 9])
async def test_a_wrong_index_entry_is_repaired_while_the_store_is_open(
    tmp_path: Path, field: int
) -> None:
    await written(tmp_path)
    store = opened(tmp_path)
    path = tmp_path / "consumequeue" / TOPIC / "1" / ("0" * 20)
    flip(5 * ENTRY.size + field, 0x81)(path)
    with capture_logs() as logs:
        check_all_but(store, set())
        check_all_but(store, set())
    lines = [line for line in logs if "consume queue were replaced" in line["event"]]
    assert len(lines) == 1
    store.abandon()
    assert check_store(tmp_path).is_clean


async def test_a_wrong_tag_in_the_index_hides_no_message(tmp_path: Path) -> None:
    await written(tmp_path)
    path = tmp_path / "consumequeue" / TOPIC / "1" / ("0" * 20)
    flip(5 * ENTRY.size + 19, 0x81)(path)
    with capture_logs():
        store = opened(tmp_path)
    hashes = frozenset({java_hash("red")})
    assert store.reader.read(TOPIC, 1, 0, max_messages=100, tag_hashes=hashes).messages == 20
    store.abandon()
    assert check_store(tmp_path).is_clean


async def test_a_damaged_message_behind_others_of_other_tags_is_the_only_damaged_one(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    store.start()
    tags = ("blue", "blue", "red", "blue", "red")
    places = [
        (await store.put(envelope(0), [entry(body(number), tag=tag)], store_ms=0)).physical_offsets[
            0
        ]
        for number, tag in enumerate(tags)
    ]
    await store.close()
    path, position = segment_of(tmp_path, places[2])
    flip(position + PARTS["body"], 0x21)(path)
    with capture_logs():
        store = opened(tmp_path)
        read, red = store.reader.read, frozenset({java_hash("red")})
        before = read(TOPIC, 0, 0, max_messages=9, tag_hashes=red)
        there = read(TOPIC, 0, 2, max_messages=9, tag_hashes=red)
    assert (before.status, before.next_offset) == (ReadStatus.NO_MATCH, 2)
    assert (there.status, there.next_offset) == (ReadStatus.DAMAGED, 3)
    behind = read(TOPIC, 0, 3, max_messages=9, tag_hashes=red)
    assert [each.body for each in decode_messages(behind.body)] == [body(4)]
    store.abandon()


@pytest.mark.parametrize("field", [0, 7, 9, 11, 19])
async def test_no_message_is_passed_over_while_a_thread_examines_its_entry(
    tmp_path: Path, field: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(tmp_path)
    path = tmp_path / "consumequeue" / TOPIC / "1" / ("0" * 20)
    flip(5 * ENTRY.size + field, 0x81)(path)
    with capture_logs():
        store = opened(tmp_path)
    monkeypatch.setattr(index_repair, "AT_ONCE_BYTES", 0)
    hashes = frozenset({java_hash("red")})
    with capture_logs() as logs:
        found = store.reader.read(TOPIC, 1, 0, max_messages=100, tag_hashes=hashes)
        assert found.status is ReadStatus.EXAMINED
        async with asyncio.timeout(60):
            while found.status is ReadStatus.EXAMINED:
                await asyncio.sleep(0.001)
                found = store.reader.read(TOPIC, 1, 0, max_messages=100, tag_hashes=hashes)
    assert found.messages == 20
    assert [each["entries"] for each in logs if "were replaced" in each["event"]] == [1]
    store.abandon()
    assert check_store(tmp_path).is_clean


async def test_no_message_is_passed_over_while_a_thread_reads_the_log_after_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its block is compared with the log, then the log is read around it: two jobs in all."""
    await written(tmp_path)
    flip(5 * ENTRY.size + 7, 0x81)(tmp_path / "consumequeue" / TOPIC / "1" / ("0" * 20))
    jobs = 0

    async def slowly(work: Callable[..., object], *args: object) -> object:
        nonlocal jobs
        jobs += 1
        await asyncio.sleep(1)
        return work(*args)

    monkeypatch.setattr(index_repair, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(index_repair, "in_thread", slowly)
    with capture_logs():
        store = opened(tmp_path)
        for _ in range(100):
            found = store.reader.read(TOPIC, 1, 0, max_messages=100)
            if found.status is not ReadStatus.EXAMINED:
                break
            await asyncio.sleep(0.1)
    assert (jobs, found.messages) == (2, 20)
    store.abandon()
    assert check_store(tmp_path).is_clean


@pytest.mark.parametrize("deleted", [0, 7])
@pytest.mark.parametrize("byte", [3, 7])
async def test_a_wrong_checksum_of_right_entries_reads_no_other_messages(
    tmp_path: Path, deleted: int, byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure would cost a reading of the log for each queue."""
    places = await written(tmp_path, count=400)
    flip(byte, 0x01)(tmp_path / "consumequeue" / TOPIC / "1" / ("0" * 20 + ".sums"))
    bytes_read = 0
    pread = os.pread

    def counting(descriptor: int, size: int, position: int) -> bytes:
        nonlocal bytes_read
        data = pread(descriptor, size, position)
        bytes_read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    with capture_logs() as logs:
        store = opened(tmp_path)
        for _ in range(deleted):
            store.log.detach_first_segment().path.unlink()
        first = next(at for at in range(200) if places[2 * at + 1] >= store.log.first_offset)
        found = store.reader.read(TOPIC, 1, first, max_messages=10)
    assert (found.status, found.messages) == (ReadStatus.FOUND, 10)
    assert not [line for line in logs if line["log_level"] in ("warning", "error")]
    of_queue = (400 - 2 * first) // 2 * (places[1] - places[0])
    assert bytes_read < 1.1 * of_queue + 60_000  # its own messages, and the start of the store
    assert next(iter(store.queues)).matches_sums()
    assert all(queue.matches_sums() for queue in store.queues)
    store.abandon()


async def test_a_search_is_not_misled_past_messages(tmp_path: Path) -> None:
    await written(tmp_path)
    store = opened(tmp_path)
    path = tmp_path / "consumequeue" / TOPIC / "1" / ("0" * 20)
    for offset in (5, 10, 15):
        flip(offset * ENTRY.size, 0x81)(path)
    with capture_logs():
        assert store.reader.min_offset(TOPIC, 1) == 0
        check_all_but(store, set())
    store.abandon()


async def test_an_empty_entry_of_a_lost_message_is_damage(tmp_path: Path) -> None:
    places = await written(tmp_path)
    path, position = segment_of(tmp_path, places[11])
    store = opened(tmp_path)
    zero(position, 40)(path)
    zero(5 * ENTRY.size, ENTRY.size)(tmp_path / "consumequeue" / TOPIC / "1" / ("0" * 20))
    with capture_logs():
        check_all_but(store, {11})
    store.abandon()


async def test_swapped_segments_of_the_log_damage_no_others(tmp_path: Path) -> None:
    places = await written(tmp_path)
    first, second = sorted(p for p in (tmp_path / "commitlog").iterdir() if p.name.isdigit())[:2]
    content = first.read_bytes(), second.read_bytes()
    first.write_bytes(content[1])
    second.write_bytes(content[0])
    end = int(second.name) + len(content[1])
    with capture_logs():
        store = opened(tmp_path)
        check_all_but(store, {number for number, place in enumerate(places) if place < end})
    store.abandon()


async def test_swapped_files_of_two_queues_are_repaired(tmp_path: Path) -> None:
    await written(tmp_path)
    folder = tmp_path / "consumequeue" / TOPIC
    (folder / "0").rename(folder / "x")
    (folder / "1").rename(folder / "0")
    (folder / "x").rename(folder / "1")
    with capture_logs():
        store = opened(tmp_path)
        check_all_but(store, set())
    store.abandon()


async def test_a_damaged_message_is_logged_once_with_its_place(tmp_path: Path) -> None:
    places = await written(tmp_path)
    path, position = segment_of(tmp_path, places[8])
    store = opened(tmp_path)
    flip(position + 100, 1)(path)
    with capture_logs() as logs:
        for _ in range(3):
            assert store.reader.read(TOPIC, 0, 4, max_messages=1).status is ReadStatus.DAMAGED
    [line] = logs
    assert line["log_level"] == "error"
    assert (line["topic"], line["queue"], line["first_offset"]) == (TOPIC, 0, 4)
    assert (line["file"], line["position"]) == (str(path), position)
    store.abandon()


async def test_a_missing_last_file_of_the_log_keeps_the_offsets(tmp_path: Path) -> None:
    places = await written(tmp_path)
    path, _ = segment_of(tmp_path, places[-1])
    lost = {number for number, place in enumerate(places) if place >= int(path.name)}
    path.unlink()
    with capture_logs() as logs:
        store = opened(tmp_path)
    assert any(line["log_level"] == "error" for line in logs)
    check_all_but(store, lost)
    store.abandon()


async def test_a_check_names_the_damage_and_changes_nothing(tmp_path: Path) -> None:
    places = await written(tmp_path)
    assert check_store(tmp_path).is_clean
    path, position = segment_of(tmp_path, places[3])
    flip(position + 90, 1)(path)
    index = tmp_path / "consumequeue" / TOPIC / "0" / ("0" * 20)
    flip(7 * ENTRY.size + 19, 1)(index)
    before = contents(tmp_path)
    report = check_store(tmp_path)
    found = {(problem.kind, problem.file, problem.position) for problem in report.problems}
    assert ("log", str(path), position) in found
    assert ("index", str(index), 7 * ENTRY.size) in found
    assert before == contents(tmp_path)


async def test_bytes_that_were_set_aside_stay(tmp_path: Path) -> None:
    await written(tmp_path)
    aside = tmp_path / "commitlog" / "00000000000000000007.dropped"
    aside.write_bytes(b"x")
    os.utime(aside, (1, 1))
    store = opened(tmp_path)
    store.start()
    await store.delete_expired(before_ms=2**50, keep_bytes=None)
    await store.close()
    assert aside.exists()


def test_a_changed_digit_in_a_table_is_noticed(tmp_path: Path) -> None:
    table = JsonTable(tmp_path / "config" / "consumerOffset.json")
    table.save({"offsetTable": {"orders@billing": {"0": 812}}})
    at = table.path.read_bytes().index(b"812")
    flip(at, 1)(table.path)
    assert table.load() == {"offsetTable": {"orders@billing": {"0": 812}}}
    assert table.used_copy
    copy = table.path.with_name("consumerOffset.json.bak")
    flip(at, 2)(copy)
    with pytest.raises(StoreError, match="damaged"):
        table.load()


def test_a_table_that_is_missing_is_not_empty(tmp_path: Path) -> None:
    table = JsonTable(tmp_path / "topics.json")
    assert table.load() == {}
    table.save({"a": 1})
    for path in tmp_path.glob("topics.json*"):
        path.unlink()
    with pytest.raises(StoreError, match="are missing"):
        table.load()
    table.path.write_text("{}")
    assert table.load() == {}


@pytest.mark.parametrize(("first", "entries"), [(0, 1100), (3, 1500), (1000, 48), (1023, 2)])
async def test_zeros_across_blocks_of_an_index_hide_no_message(
    tmp_path: Path, first: int, entries: int
) -> None:
    """The part of the run in one block borders on empty entries of another."""
    store = MessageStore(tmp_path, segment_bytes=1 << 20, flush="async")
    store.start()
    for number in range(1600):
        await store.put(envelope(), [entry(body(number))], store_ms=number)
    await store.close()
    path = tmp_path / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    zero(first * ENTRY.size, entries * ENTRY.size)(path)
    store = MessageStore(tmp_path, segment_bytes=1 << 20, flush="async")
    with capture_logs():
        store.start()
        at = 0
        while (read := store.reader.read(TOPIC, 0, at, max_messages=100)).messages:
            assert read.status is ReadStatus.FOUND
            at += read.messages
        await store.close()
    assert at == 1600
