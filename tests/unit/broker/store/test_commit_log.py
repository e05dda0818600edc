from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core.errors import MayBeStored, StoreError
from broker_core.remoting.message import MAGIC_BLANK, decode_message
from broker_core.store import commit_log
from broker_core.store.commit_log import CommitLog
from tests.support.store_messages import append_to, stored

SIZE = len(stored(b"x" * 100))
SEGMENT = 4 * SIZE + 20  # four messages, and a bit less than a filler


def opened(folder: Path, *, end: int = 0) -> CommitLog:
    log = CommitLog(folder, segment_bytes=SEGMENT)
    log.open_at(end)
    return log


def message() -> bytearray:
    return stored(b"x" * 100)


def test_messages_carry_the_place_they_stand_at(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert append_to(log, [message(), message()]) == [0, SIZE]
    assert append_to(log, [message()]) == [2 * SIZE]
    for place in (0, SIZE, 2 * SIZE):
        assert decode_message(log.read(place, SIZE), check_crc=True).physical_offset == place
    log.close()


def test_segments_are_allocated_and_named_by_their_start(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert [append_to(log, [message()])[0] for _ in range(5)] == [
        0, SIZE, 2 * SIZE, 3 * SIZE, SEGMENT,
    ]  # fmt: skip
    assert [(p.name, p.stat().st_size) for p in sorted(tmp_path.iterdir())] == [
        ("0" * 20, SEGMENT),
        (f"{SEGMENT:020d}", SEGMENT),
    ]
    filler = log.read(4 * SIZE, 8) if log.end_offset < SEGMENT else None
    assert filler is None
    with (tmp_path / ("0" * 20)).open("rb") as file:
        file.seek(4 * SIZE)
        assert struct.unpack(">iI", file.read(8)) == (SEGMENT - 4 * SIZE, MAGIC_BLANK)
    log.close()


def test_what_is_appended_together_stays_in_one_segment(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append_to(log, [message(), message()])
    assert append_to(log, [message(), message(), message()])[0] == SEGMENT
    log.close()


def test_more_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with pytest.raises(ValueError, match=f"bytes: at most {log.largest_append_bytes}"):
        append_to(log, [message() for _ in range(5)])
    assert log.end_offset == 0
    log.close()


def test_reads_outside_the_log_are_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append_to(log, [message()])
    for offset, size in ((-1, 1), (0, SIZE + 1), (SIZE, 1)):
        with pytest.raises(StoreError, match=f"no {size} bytes at offset {offset}"):
            log.read(offset, size)
    log.close()


def test_opening_drops_what_is_behind_the_end(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(6):
        append_to(log, [message()])
    log.close()
    again = CommitLog(tmp_path, segment_bytes=SEGMENT)
    # Two messages and the filler in the first segment, two messages in the second.
    dropped = again.open_at(2 * SIZE)
    assert (dropped.path.name, dropped.position) == ("0" * 20, 2 * SIZE)
    assert dropped.size == 2 * SIZE + 8 + 2 * SIZE
    aside = (tmp_path / f"{2 * SIZE:020d}.dropped").read_bytes()
    assert decode_message(aside[SIZE:]).physical_offset == 3 * SIZE
    assert (tmp_path / f"{SEGMENT:020d}.dropped").stat().st_size == SEGMENT
    raw = (tmp_path / ("0" * 20)).read_bytes()
    assert raw[2 * SIZE :] == bytes(SEGMENT - 2 * SIZE)
    assert append_to(again, [message()]) == [2 * SIZE]
    again.close()


def test_a_disk_too_full_for_a_segment_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    for _ in range(4):
        append_to(log, [message()])

    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space left"):
            append_to(log, [message()])
    assert [p.name for p in tmp_path.iterdir()] == ["0" * 20]
    assert append_to(log, [message()]) == [SEGMENT]  # there is room again
    log.close()


def test_after_a_failed_write_the_log_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    append_to(log, [message()])

    def broken(descriptor: int, data: bytes, position: int) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", broken)
        with pytest.raises(MayBeStored, match="Input/output"):
            append_to(log, [message()])
    with pytest.raises(OSError, match="failed before: Input/output error"):
        append_to(log, [message()])
    assert log.end_offset == SIZE
    log.close()


def test_a_sync_covers_segments_left_since_the_last_one(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(9):
        append_to(log, [message()])
    sync = log.start_sync()
    assert len(sync.descriptors) == 3
    assert sync.end == log.end_offset
    append_to(log, [message()])
    sync.run()
    log.finish_sync(sync)
    assert len(log.start_sync().descriptors) == 1
    log.close()


def test_a_segment_that_fills_up_during_a_sync_is_synced_once_more(tmp_path: Path) -> None:
    """Data added meanwhile is not on disk, and may be answered only after another sync."""
    log = opened(tmp_path)
    append_to(log, [message()])
    sync = log.start_sync()
    (active,) = sync.descriptors
    for _ in range(4):
        append_to(log, [message()])  # fills it, and continues in the next one
    sync.run()
    log.finish_sync(sync)
    again = log.start_sync()
    assert active in again.descriptors
    assert len(again.descriptors) == 2
    again.run()
    log.finish_sync(again)
    assert len(log.start_sync().descriptors) == 1
    log.close()


def test_the_oldest_segment_can_be_deleted_but_never_the_last(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(5):
        append_to(log, [message()])
    assert log.detach_first_segment().start == 0
    assert log.first_offset == SEGMENT
    with pytest.raises(StoreError):
        log.read(0, SIZE)
    with pytest.raises(IndexError):
        log.detach_first_segment()
    log.close()


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(9):
        append_to(log, [message()])
    log.close()
    (tmp_path / f"{SEGMENT:020d}").unlink()
    with pytest.raises(StoreError, match=f"ends at {SEGMENT}, the next segment starts at"):
        CommitLog(tmp_path, segment_bytes=SEGMENT)


def test_another_segment_size_may_be_set_later(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(5):
        append_to(log, [message()])
    end = log.end_offset
    log.close()
    larger = CommitLog(tmp_path, segment_bytes=2 * SEGMENT)
    larger.open_at(end)
    assert [s.capacity for s in larger.segments] == [SEGMENT, 2 * SEGMENT]
    larger.close()


def test_a_write_without_room_leaves_nothing_that_a_start_could_take_for_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three messages were written completely when the disk was full; their sender got an
    error.
    """
    log = opened(tmp_path)
    append_to(log, [message()])
    write = os.pwrite

    def until_full(descriptor: int, data: bytes, position: int) -> int:
        if position > SIZE:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: 2 * SIZE + 10], position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", until_full)
        with pytest.raises(OSError, match="No space left"):
            append_to(log, [message(), message(), message()])
    assert (tmp_path / ("0" * 20)).stat().st_size == SIZE

    assert append_to(log, [message()]) == [SIZE]  # there is room again, all of the segment
    assert (tmp_path / ("0" * 20)).read_bytes()[2 * SIZE :] == bytes(SEGMENT - 2 * SIZE)
    log.close()


def test_a_write_without_room_that_cannot_be_undone_may_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)

    def fails(number: int) -> Callable[..., int]:
        def call(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fails(28))
        patched.setattr(os, "ftruncate", fails(5))
        with pytest.raises(MayBeStored, match="No space left"):
            append_to(log, [message()])
    with pytest.raises(OSError, match="failed before: Input/output"):
        append_to(log, [message()])
    log.close()


@pytest.mark.parametrize("room_for", ["nothing", "a segment"])
def test_a_log_opened_without_room_is_read_and_filled_up_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_for: str
) -> None:
    log = opened(tmp_path)
    append_to(log, [message()])
    log.close()
    os.truncate(tmp_path / ("0" * 20), SIZE)
    allocate = os.posix_fallocate

    def full(descriptor: int, start: int, size: int) -> None:
        if room_for == "nothing" or os.fstat(descriptor).st_size:
            raise OSError(28, "No space left on device")
        allocate(descriptor, start, size)

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        log = opened(tmp_path, end=SIZE)
        assert decode_message(log.read(0, SIZE)).body == b"x" * 100
        with pytest.raises(OSError, match="No space left"):
            append_to(log, [message()])
        assert log.end_offset == SIZE
        if room_for == "a segment":  # exceeds the rest of the first one: no hole after it
            assert append_to(log, [message() for _ in range(4)])[0] == SEGMENT
            log.close()
            log = opened(tmp_path, end=SEGMENT + 4 * SIZE)
            assert log.segments[0].capacity == (tmp_path / ("0" * 20)).stat().st_size == SEGMENT
    assert append_to(log, [message()])[0] in (SIZE, 2 * SEGMENT)
    log.close()


@pytest.mark.parametrize("segment_bytes", [20_000, 10**6])
def test_pieces_are_what_single_reads_give_wherever_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    """Adjacent, near and far ones, in one segment and in several, and more than one read."""
    monkeypatch.setattr(commit_log, "READ_AT_ONCE_BYTES", 9_000)
    log = CommitLog(tmp_path, segment_bytes=segment_bytes)
    log.open_at(0)
    sizes = random.Random(7)
    pieces = []
    for number in range(120):
        each = stored(b"%d" % number * sizes.choice([1, 50, 500, 4_000]))
        pieces.append((append_to(log, [each])[0], len(each)))
    for step in (1, 2, 3, 7):
        for few in (pieces[::step], pieces[5:6], pieces[step : step + 2]):
            assert log.read_pieces(few) == b"".join(log.read(*piece) for piece in few)
    with pytest.raises(StoreError, match="holds no"):
        log.read_pieces([(log.end_offset - 5, 10)])
    log.close()


@pytest.mark.parametrize("ends", ["killed", "no room"])
def test_a_roll_that_ends_early_leaves_no_hole_behind_a_short_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """After a start on a full disk the last file has only the length of its content."""
    log = opened(tmp_path)
    append_to(log, [message()])
    log.close()
    first = tmp_path / ("0" * 20)
    os.truncate(first, SIZE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        log = opened(tmp_path, end=SIZE)
    assert first.stat().st_size == SIZE
    with monkeypatch.context() as patched:
        patched.setattr(commit_log, "write_at", full)
        if ends == "killed":  # once the new file is there
            patched.setattr(Path, "unlink", lambda _: None)
        with pytest.raises(OSError, match="No space left"):
            append_to(log, [message() for _ in range(4)])
    assert (tmp_path / f"{SEGMENT:020d}").exists() == (ends == "killed")
    assert first.stat().st_size == SEGMENT
    log.close()
    log = opened(tmp_path, end=SIZE)
    assert append_to(log, [message()]) == [SIZE]
    assert append_to(log, [message() for _ in range(3)])[0] == SEGMENT
    log.close()


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        pytest.param(5, 4 * SIZE, id="a segment with a message"),
        pytest.param(4, 4 * SIZE, id="an empty segment"),
        pytest.param(9, SIZE, id="several segments"),
    ],
)
def test_a_removed_segment_is_not_read_in_place_of_its_successor(
    tmp_path: Path, messages: int, end: int
) -> None:
    log = opened(tmp_path)
    for _ in range(messages):
        append_to(log, [message()])
    if messages == 4:
        log.make_room(SIZE)  # the next segment, without a message
    log.close()
    log = read_and_reopened(tmp_path, lambda log: log.open_at(end))
    for _ in range(9):
        (place,) = append_to(log, [message()])
        assert decode_message(log.read(place, SIZE), check_crc=True).physical_offset == place
    log.close()


def test_a_log_that_begins_again_is_not_read_from_its_former_files(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(5):
        append_to(log, [message()])
    log.close()
    log = read_and_reopened(tmp_path, lambda log: log.begin_at(0))
    for _ in range(5):
        (place,) = append_to(log, [stored(b"y" * 100)])
        assert decode_message(log.read(place, SIZE), check_crc=True).body == b"y" * 100
    log.close()


def read_and_reopened(folder: Path, reopen: Callable[[CommitLog], object]) -> CommitLog:
    """Return a log that was read, as by a recovery, before *reopen*."""
    log = CommitLog(folder, segment_bytes=SEGMENT)
    for segment in log.segments:
        log.read_segment(segment, segment.start, SIZE)
    reopen(log)
    return log
