from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from broker_core.store.consume_queue import ENTRY, ConsumeQueue
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.files import OpenFiles, sync_file
from testkit.simulation.disk import Disk

PER_FILE = 4


class Killed(BaseException):
    """Replaces a kill."""


def opened(folder: Path) -> ConsumeQueue:
    return ConsumeQueue(folder / "q", files=OpenFiles(), entries_per_file=PER_FILE)


def filled(folder: Path, count: int) -> ConsumeQueue:
    """Return a queue whose entry n stands for 100 bytes of log at 100 * n."""
    queue = opened(folder)
    queue.append(b"".join(ENTRY.pack(100 * n, 100, n) for n in range(count)))
    return queue


def places(queue: ConsumeQueue, offset: int, count: int) -> list[int]:
    return [place for place, _, _ in ENTRY.iter_unpack(queue.read(offset, count))]


@pytest.mark.parametrize("flushed", [False, True])
def test_entries_are_read_by_number_over_files_and_memory(tmp_path: Path, flushed: bool) -> None:
    queue = filled(tmp_path, 10)
    if flushed:
        queue.flush()
        queue.append(ENTRY.pack(1000, 100, 10))
    assert places(queue, 0, 10) == [100 * n for n in range(10)]
    assert places(queue, 3, 2) == [300, 400]
    assert places(queue, 9, 99) == ([900, 1000] if flushed else [900])
    assert queue.read(queue.end_offset, 5) == b""
    assert queue.entry(7) == (700, 100, 7)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_checkpoint_syncs_survives_a_power_cut(tmp_path: Path, seed: int) -> None:
    disk = Disk(tmp_path, random.Random(seed))
    folder = tmp_path / "host"
    with disk.install():
        queue = filled(folder, 10)
        queue.flush()
        for path in queue.take_written():
            sync_file(path)
        disk.lose_power(folder)
    assert opened(folder).end_offset == 10


class _WrittenBack:
    """The state of a folder on its disk, to which the kernel writes files at any moment, or when
    they are synced.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[Path, bytes] = {}
        self._inodes: dict[Path, int] = {}

    def write(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if path.is_file():
                self._contents[path], self._inodes[path] = path.read_bytes(), path.stat().st_ino

    def sync_folder(self) -> None:
        there = {path: path.stat().st_ino for path in self._folder.iterdir()}
        for path in list(self._contents):
            if path not in there:
                del self._contents[path]
            elif self._inodes[path] != there[path]:
                self._contents[path] = b""

    def lose_power(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()
        for path, content in self._contents.items():
            path.write_bytes(content)
            self._inodes[path] = path.stat().st_ino


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_intact_entries_stay_right_over_power_cuts(tmp_path: Path, seed: int) -> None:
    """Otherwise each queue would be repaired after a power failure, and in vain."""
    chance = random.Random(seed)
    folder = tmp_path / "q"
    on_disk = _WrittenBack(folder)
    kept = b""  # entries before the last checkpoint
    for life in range(1, 20):
        files = OpenFiles()
        queue = ConsumeQueue(folder, files=files, entries_per_file=64)
        count = len(kept) // ENTRY.size
        queue.cut_behind(100 * count)
        wrong: list[tuple[int, int]] = []
        again = ConsumeQueue(
            folder, files=files, entries_per_file=64, on_wrong=partial(_note, wrong)
        )
        assert (again.read(0, count), wrong) == (kept, [])
        for _ in range(chance.randrange(1, 5)):
            numbers = range(queue.end_offset, queue.end_offset + chance.randrange(1, 20))
            queue.append(b"".join(ENTRY.pack(100 * at, 100, life) for at in numbers))
            queue.flush()
            on_disk.write(path for path in sorted(folder.iterdir()) if chance.random() < 0.3)
            if chance.random() < 0.4:
                written = queue.take_written()
                on_disk.write(written)
                if folder in written:
                    on_disk.sync_folder()
                kept = queue.read(0, queue.end_offset)
        files.close()
        on_disk.lose_power()


def _note(wrong: list[tuple[int, int]], _: ConsumeQueue, first: int, count: int) -> bool:
    wrong.append((first, count))
    return True


def test_flushed_entries_are_found_again(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    assert opened(tmp_path).end_offset == 0
    queue.flush()
    written = {path.name for path in queue.take_written() if path.is_file()}
    assert written == {f"{start:020}" for start in (0, 80, 160)}
    assert queue.take_written() == set()
    again = opened(tmp_path)
    assert (again.first_offset, again.end_offset) == (0, 10)
    assert places(again, 0, 10) == [100 * n for n in range(10)]


def test_many_entries_do_not_stay_in_memory(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "q", files=OpenFiles())
    for n in range(4000):
        queue.append(ENTRY.pack(n, 1, 0))
    assert (tmp_path / "q" / ("0" * 20)).stat().st_size >= 64 * 1024
    assert places(queue, 3270, 10) == list(range(3270, 3280))


def test_search_by_place_in_the_log(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    assert [queue.first_at_or_behind(p) for p in (0, 1, 100, 899, 900, 901)] == [0, 1, 1, 9, 9, 10]


def test_cut_by_number(tmp_path: Path) -> None:
    for end in (10, 9, 8, 5, 4, 0):
        queue = filled(tmp_path / str(end), 10)
        queue.cut(end)
        assert queue.end_offset == end
        queue.append(ENTRY.pack(7777, 1, 0))
        queue.flush()
        assert places(opened(tmp_path / str(end)), 0, 99)[-2:] == [
            *([100 * (end - 1)] if end else []),
            7777,
        ]


def test_cut_behind_a_place_in_the_log(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    queue.cut_behind(1000)
    assert queue.end_offset == 10
    queue.cut_behind(850)  # in the middle of number 8
    assert queue.end_offset == 8
    queue.cut_behind(0)
    assert queue.end_offset == 0


@pytest.mark.parametrize(
    "rubbish",
    [bytes(45), ENTRY.pack(-7, 1, 0) * 2, ENTRY.pack(2**62, 9, 0) + ENTRY.pack(5, -9, 0)],
    ids=["zeros", "negative place", "far behind"],
)
def test_what_a_power_cut_leaves_is_no_entry(tmp_path: Path, rubbish: bytes) -> None:
    queue = filled(tmp_path, 5)
    queue.flush()
    with (tmp_path / "q" / f"{80:020d}").open("ab") as file:
        file.write(rubbish)
    again = opened(tmp_path)
    assert again.end_offset == 7
    again.cut_behind(10_000)
    assert again.end_offset == 5


def test_a_queue_can_start_at_any_number(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.start_at(6)
    assert queue.end_offset == 6
    queue.append(ENTRY.pack(5000, 100, 0))
    queue.flush()
    again = opened(tmp_path)
    assert again.first_at_or_behind(0) == 6
    again.cut_behind(5000)
    assert again.end_offset == 6  # the number outlives the message
    assert again.first_at_or_behind(0) == 6


@pytest.mark.parametrize("offset", range(11))
def test_a_queue_without_messages_ends_where_it_did_whenever_it_is_broken_off(
    tmp_path: Path, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each change of its files; then again, until it succeeds."""
    queue = filled(tmp_path, 10)
    queue.flush()
    queue.cut(offset)
    done = False
    for changes in range(9):
        left = changes

        def killed(change: Callable[..., object], *arguments: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return change(*arguments)

        with monkeypatch.context() as patched:
            for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "fdatasync")):
                change = partial(killed, getattr(owner, name))
                patched.setattr(owner, name, lambda *a, change=change, **_: change(*a))
            try:
                queue.end_empty_at(offset)
                done = True
            except Killed:
                pass
        queue = opened(tmp_path)
        assert queue.end_offset == offset
    assert done
    assert queue.first_at_or_behind(0) == offset
    queue.append(ENTRY.pack(5000, 100, 0))
    assert places(queue, offset, 9) == [5000]


def test_a_queue_without_messages_keeps_its_end_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(tmp_path, 10)
    queue.flush()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    queue.end_empty_at(9)
    assert (queue.end_offset, opened(tmp_path).end_offset) == (9, 9)
    assert not list((tmp_path / "q").glob("*.new"))


def test_files_of_deleted_messages_go_but_the_last_stays(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    queue.flush()
    queue.delete_before(7)
    assert queue.first_offset == 4
    queue.delete_before(10)
    assert (queue.first_offset, queue.end_offset) == (8, 10)
    again = opened(tmp_path)
    assert (again.first_offset, again.end_offset) == (8, 10)


def test_files_behind_a_gap_are_deleted(tmp_path: Path) -> None:
    filled(tmp_path, 12).flush()
    (tmp_path / "q" / f"{80:020d}").unlink()
    queue = opened(tmp_path)
    assert queue.end_offset == 4
    queue.append(ENTRY.pack(7, 1, 0) * 5)
    queue.flush()
    assert opened(tmp_path).end_offset == 9


def test_queues_are_found_by_folder_names(tmp_path: Path) -> None:
    queues = ConsumeQueues(tmp_path)
    queues.obtain("orders", 3).append(ENTRY.pack(0, 1, 0))
    queues.obtain("%RETRY%billing", 0).append(ENTRY.pack(1, 1, 0) * 2)
    for queue in queues:
        queue.flush()
    queues.close()
    again = ConsumeQueues(tmp_path)
    assert again.count() == 3
    assert again.obtain("orders", 3).end_offset == 1
    assert again.find("orders", 0) is None
