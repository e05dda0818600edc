"""The simulated disk: surviving and lost writes after a power loss."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core.store.files import sync_file, sync_folder, write_at
from broker_core.store.tables import JsonTable
from testkit.simulation.disk import Disk, StaleDescriptor

#: The surviving part is random, so each claim is checked with many seeds.
SEEDS = range(40)


def lost(tmp_path: Path, before: Callable[[Path], None], seed: int) -> Path:
    """Return a host's folder after *before* ran there and the power failed."""
    disk = Disk(tmp_path / f"world-{seed}", random.Random(seed))
    host = disk.folder / "host"
    host.mkdir()
    with disk.install():
        before(host)
        disk.lose_power(host)
    return host


def written(path: Path, *parts: bytes, sync_after: int = 0) -> None:
    """Append *parts* one by one; the first *sync_after* of them are synced."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    position = 0
    for number, part in enumerate(parts, 1):
        write_at(descriptor, part, position)
        position += len(part)
        if number == sync_after:
            os.fdatasync(descriptor)
            sync_folder(path.parent)
    os.close(descriptor)


@pytest.fixture
def parts() -> list[bytes]:
    return [bytes([65 + number]) * 100 for number in range(6)]


def test_what_was_synced_survives(tmp_path: Path, parts: list[bytes]) -> None:
    for seed in SEEDS:
        host = lost(tmp_path, lambda host: written(host / "log", *parts, sync_after=6), seed)
        assert (host / "log").read_bytes() == b"".join(parts)


def test_unsynced_writes_survive_up_to_a_point_that_may_be_within_one(
    tmp_path: Path, parts: list[bytes]
) -> None:
    whole, ends = b"".join(parts), set()
    for seed in SEEDS:
        host = lost(tmp_path, lambda host: written(host / "log", *parts, sync_after=2), seed)
        content = (host / "log").read_bytes()
        assert len(content) >= 200
        assert content == whole[: len(content)]
        ends.add(len(content))
    assert any(end % 100 for end in ends), "none was torn"
    assert min(ends) < 300 < max(ends)


def test_a_new_file_without_its_folder_synced_may_be_gone(tmp_path: Path) -> None:
    def make(host: Path) -> None:
        written(host / "log", b"x")
        sync_file(host / "log")

    there = {(lost(tmp_path, make, seed) / "log").exists() for seed in SEEDS}
    assert there == {True, False}


def test_an_unsynced_truncation_restores_the_cut_bytes(tmp_path: Path) -> None:
    def cut(host: Path) -> None:
        written(host / "log", b"abcdef", sync_after=1)
        descriptor = os.open(host / "log", os.O_RDWR)
        os.ftruncate(descriptor, 2)
        os.close(descriptor)

    contents = {(lost(tmp_path, cut, seed) / "log").read_bytes() for seed in SEEDS}
    assert contents == {b"ab", b"abcdef"}


def test_a_table_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    def save(host: Path) -> None:
        table = JsonTable(host / "table.json")
        table.save({"version": 1})
        table.save({"version": 2})

    for seed in SEEDS:
        host = lost(tmp_path, save, seed)
        assert JsonTable(host / "table.json").load() == {"version": 2}


def test_a_renamed_file_that_was_never_synced_may_be_torn(tmp_path: Path) -> None:
    """A table saved without a sync would be torn: the disk finds such a bug."""

    def save(host: Path) -> None:
        (host / "fresh").write_bytes(b"0123456789")
        (host / "fresh").replace(host / "table")
        sync_folder(host)

    sizes = {len((lost(tmp_path, save, seed) / "table").read_bytes()) for seed in SEEDS}
    assert len(sizes) > 2


def test_a_full_disk_takes_nothing_until_there_is_room(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "world", random.Random(0))
    host, other = disk.folder / "host", disk.folder / "other"
    host.mkdir()
    other.mkdir()
    with disk.install():
        disk.fill(host)
        with pytest.raises(OSError, match="No space left") as caught:
            written(host / "log", b"x")
        assert caught.value.errno == errno.ENOSPC
        written(other / "log", b"x")
        disk.free(host)
        written(host / "log", b"x")
        assert (host / "log").read_bytes() == b"x"


def test_a_byte_of_a_file_flips_and_no_other(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "world", random.Random(1))
    host = disk.folder / "host"
    host.mkdir()
    assert disk.flip_byte(host) is None
    content = bytes(range(1, 200)) + bytes(50)
    (host / "log").write_bytes(content)
    with disk.install():
        flipped = disk.flip_byte(host)
    assert flipped is not None
    path, position = flipped
    after = Path(path).read_bytes()
    assert position < 199, "zeros at the end are unused"
    assert [at for at in range(len(content)) if after[at] != content[at]] == [position]


def test_a_descriptor_that_a_file_object_took_over_is_closed_once(tmp_path: Path) -> None:
    """Otherwise the end of a world closed whatever had got its number since."""
    disk = Disk(tmp_path / "world", random.Random(1))
    with disk.install():
        path = disk.folder / "table"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o640), "wb") as file:
            file.write(b"content")
        other = os.dup(0)  # gets the number that became free
    os.fstat(other)
    os.close(other)
    assert path.read_bytes() == b"content"


def test_a_file_that_was_never_synced_may_be_torn_however_it_was_opened(tmp_path: Path) -> None:
    def replace(host: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(host / "fresh", flags, 0o640), "wb") as file:
            file.write(b"content")
        (host / "fresh").replace(host / "table")
        sync_folder(host)

    found = {lost(tmp_path, replace, seed).joinpath("table").read_bytes() for seed in SEEDS}
    assert found != {b"content"}


def test_a_descriptor_of_a_replaced_file_is_rejected(tmp_path: Path) -> None:
    disk = Disk(tmp_path, random.Random(1))
    path = tmp_path / "host" / "log"
    path.parent.mkdir()
    with disk.install():
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(descriptor, b"former", 0)
        path.unlink()
        assert os.pread(descriptor, 6, 0) == b"former"  # retention deletes what is being read
        with pytest.raises(StaleDescriptor, match="was removed"):
            os.pwrite(descriptor, b"late", 0)
        path.write_bytes(b"newer")
        with pytest.raises(StaleDescriptor, match="was replaced"):
            os.pread(descriptor, 6, 0)
        with pytest.raises(StaleDescriptor, match="was replaced"):
            os.pwrite(descriptor, b"late", 0)


def test_syncs_count_again_if_the_power_stays_on(tmp_path: Path) -> None:
    disk = Disk(tmp_path, random.Random(1))
    path = tmp_path / "host" / "log"
    path.parent.mkdir()
    with disk.install():
        disk.when_writing(path.parent, lambda: None)
        written(path, b"first")
        disk.stop_waiting(path.parent)
        written(path, b"after", sync_after=1)
        disk.lose_power(path.parent)
    assert path.read_bytes() == b"after"
