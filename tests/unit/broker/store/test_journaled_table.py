"""A table saved by its changes: what a crash, a full disk and damage leave of it."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.errors import StoreError
from broker_core.store import journaled_table
from broker_core.store.journaled_table import JournaledTable, merged
from broker_core.store.tables import JsonTable

Content = dict[str, Any]


def changes(count: int, *, seed: int = 1) -> list[Content]:
    """Return patches of a table of numbers by name, some of which delete."""
    chance = random.Random(seed)
    return [
        {
            "table": {f"t{chance.randrange(20)}": chance.choice([None, {"n": n}])},
            "version": {"counter": n},
        }
        for n in range(count)
    ]


def expected(patches: list[Content]) -> Content:
    content: Content = {}
    for patch in patches:
        content = merged(content, orjson.loads(orjson.dumps(patch)), depth=2)
    return content


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JournaledTable:
    monkeypatch.setattr(journaled_table, "LEAST_FOLDED_BYTES", 1000)
    monkeypatch.setattr(journaled_table, "SMALL_BYTES", 0)
    return JournaledTable(tmp_path / "topics.json")


def reopened(table: JournaledTable) -> JournaledTable:
    return JournaledTable(table.path)


def test_changes_add_up_over_restarts_and_folds(table: JournaledTable) -> None:
    patches = changes(200)
    for number, patch in enumerate(patches):
        table.append(patch)
        if number % 7 == 0:
            table = reopened(table)
        if number % 50 == 0:
            assert reopened(table).load() == expected(patches[: number + 1])
    assert reopened(table).load() == expected(patches)
    table.fold()
    assert JsonTable(table.path).load() == expected(patches), "an older version reads it"


def test_a_change_costs_as_much_as_the_change(tmp_path: Path) -> None:
    table = JournaledTable(tmp_path / "topics.json")
    table.save_bytes(orjson.dumps({"table": {f"topic-{n}": {"n": n} for n in range(10_000)}}))
    inode, size = table.path.stat().st_ino, table.path.stat().st_size
    for n in range(100):
        table.append({"table": {f"new-{n}": {"n": n}}})
    assert table.path.stat().st_ino == inode, "the table is not written again"
    journal = tmp_path / "topics.json.journal"
    assert journal.stat().st_size < size / 20
    assert len(reopened(table).load()["table"]) == 10_100


def test_a_torn_last_change_never_counted(table: JournaledTable, tmp_path: Path) -> None:
    patches = changes(10)
    for patch in patches:
        table.append(patch)
    journal = tmp_path / "topics.json.journal"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    last = len(whole) - len(lines[-1])
    for end in range(last, len(whole)):
        journal.write_bytes(whole[:end])
        torn = reopened(table)
        assert torn.load() == expected(patches[:-1])
        torn.append(patches[-1])
        assert reopened(table).load() == expected(patches)


def test_a_damaged_change_before_intact_ones_is_reported(
    table: JournaledTable, tmp_path: Path
) -> None:
    for patch in changes(10):
        table.append(patch)
    journal = tmp_path / "topics.json.journal"
    data = bytearray(journal.read_bytes())
    data[len(data) // 3] ^= 1
    journal.write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged at line \d+, and intact lines follow"):
        reopened(table).load()


def test_a_missing_table_beside_its_journal_is_not_an_empty_one(
    table: JournaledTable, tmp_path: Path
) -> None:
    for patch in changes(5):
        table.append(patch)
    table.path.unlink()
    for copy in table.path.parent.glob("topics.json.bak"):
        assert reopened(table).load() == expected(changes(5)), "its copy and the journal have it"
        copy.unlink()
    with pytest.raises(StoreError, match="missing"):
        reopened(table).load()


def test_the_backup_of_a_damaged_table_is_completed_by_the_journals(
    table: JournaledTable,
) -> None:
    patches = changes(120)
    for patch in patches:
        table.append(patch)
    table.fold()
    table.append({"table": {"last": {"n": 1}}})
    table.path.write_bytes(b"garbage")
    assert reopened(table).load() == expected([*patches, {"table": {"last": {"n": 1}}}])


@pytest.mark.parametrize("first", ["topics.json", "topics.json.bak"])
@pytest.mark.parametrize("how", ["missing", "damaged", "older"])
@pytest.mark.parametrize("second", ["topics.json", "topics.json.bak"])
def test_a_repaired_table_survives_the_loss_of_either_file(
    table: JournaledTable, tmp_path: Path, first: str, how: str, second: str
) -> None:
    """A crash between its two writes leaves one of them, and the next write may be months later."""
    patches = changes(40)
    for patch in patches[:20]:
        table.append(patch)
    table.fold()
    older = (tmp_path / "topics.json").read_bytes()
    for patch in patches[20:]:
        table.append(patch)
    table.fold()
    lost = {"missing": None, "damaged": b"garbage", "older": older}[how]
    if lost is None:
        (tmp_path / first).unlink()
    elif how == "damaged" or first != "topics.json":  # the file is written before its copy
        (tmp_path / first).write_bytes(lost)
    again = reopened(table)
    again.load()
    again.repair()
    (tmp_path / second).write_bytes(b"garbage")
    assert reopened(table).load() == expected(patches)


@pytest.mark.parametrize("step", range(6))
def test_a_crash_within_a_fold_changes_nothing(
    table: JournaledTable, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each call that changes the folder may be the last one before the crash."""
    patches = changes(20)
    for patch in patches[:10]:
        table.append(patch)
    table.fold()
    for patch in patches[10:]:
        table.append(patch)
    left = step

    def or_crash(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as crashing:
        for name in ("replace", "unlink", "link"):
            crashing.setattr(os, name, or_crash(getattr(os, name)))
        with contextlib.suppress(KeyboardInterrupt):
            table.fold()
    assert reopened(table).load() == expected(patches)
    again = reopened(table)
    again.append({"table": {"more": {"n": 7}}})
    assert reopened(again).load() == expected([*patches, {"table": {"more": {"n": 7}}}])


def test_a_change_that_the_disk_refuses_has_no_effect(
    table: JournaledTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches = changes(6)
    for patch in patches[:-1]:
        table.append(patch)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(OSError, match="No space left"):
            table.append({"table": {"refused, and longer than what follows": {"n": 0}}})
    assert table.load() == expected(patches[:-1])
    table.append(patches[-1])
    assert reopened(table).load() == expected(patches)


def test_a_fold_whose_folder_cannot_be_synced_loses_no_later_change(
    table: JournaledTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches = changes(8)
    for patch in patches[:5]:
        table.append(patch)
    with monkeypatch.context() as failing:
        failing.setattr(journaled_table, "sync_folder", _refuse)
        with pytest.raises(OSError, match="No space left"):
            table.fold()
    for number, patch in enumerate(patches[5:], 6):
        table.append(patch)
        assert reopened(table).load() == expected(patches[:number])


def test_a_journal_whose_folder_could_not_be_synced_is_synced_with_the_next_change(
    table: JournaledTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure could remove it with changes that were confirmed."""
    patches, synced = changes(3), list[Path]()
    table.append(patches[0])
    with monkeypatch.context() as failing:
        failing.setattr(journaled_table, "sync_folder", _refuse)
        with pytest.raises(OSError, match="No space left"):
            table.append({"table": {"refused": {"n": 0}}})
    monkeypatch.setattr(journaled_table, "sync_folder", synced.append)
    table.append(patches[1])
    table.append(patches[2])
    assert synced == [table.path.parent]
    assert reopened(table).load() == expected(patches)


def _refuse(_: Path) -> None:
    raise OSError(28, "No space left on device")


def test_a_replaced_table_is_not_changed_by_earlier_changes(table: JournaledTable) -> None:
    """A slave takes its master's table; a crash must not bring its own topics back."""
    table.append({"table": {"old": {"n": 1}}})
    table.append({"table": {"older": {"n": 1}}})
    table.save_bytes(orjson.dumps({"table": {"master": {"n": 2}}}))
    assert reopened(table).load() == {"table": {"master": {"n": 2}}}
    table.append({"table": {"after": {"n": 3}}})
    table.fold()
    assert reopened(table).load() == {"table": {"master": {"n": 2}, "after": {"n": 3}}}


def test_a_small_table_is_replaced_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journaled_table, "LEAST_FOLDED_BYTES", 1000)
    table = JournaledTable(tmp_path / "topics.json")
    patches = changes(300)
    for number, patch in enumerate(patches):
        # It grows beyond the limit, and shrinks below it.
        monkeypatch.setattr(journaled_table, "SMALL_BYTES", 0 if number % 100 > 50 else 10**6)
        table.append(patch)
        if number % 25 == 0:
            table.fold()
            table = reopened(table)
        assert reopened(table).load() == expected(patches[: number + 1])
    monkeypatch.setattr(journaled_table, "SMALL_BYTES", 10**6)
    table = reopened(table)
    table.fold()
    table.append({"table": {"whole": {"n": 1}}})
    assert JsonTable(table.path).load()["table"]["whole"] == {"n": 1}
    assert not (tmp_path / "topics.json.journal.bak").exists()
