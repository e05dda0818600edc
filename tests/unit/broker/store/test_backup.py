"""Export of a data folder, beside a running store and after it, and import into a new one."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from broker_core.broker.restoring import restored_table
from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.message import decode_messages
from broker_core.store import exporting
from broker_core.store.backup import MANIFEST, Manifest
from broker_core.store.check import check_store
from broker_core.store.exporting import export_store
from broker_core.store.importing import import_store
from broker_core.store.message_store import MessageStore
from broker_core.store.tables import JsonTable
from broker_core.tasks import spawn
from tests.support.flipped_files import flip
from tests.support.store_messages import entry, envelope

SEGMENT_BYTES = 4000
NOW_MS = 1_800_000_000_000


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    """Return the bodies of a queue's messages."""
    first = store.reader.min_offset(Topic(topic), queue_id)
    found = store.reader.read(Topic(topic), queue_id, first, max_messages=10_000)
    return [bytes(each.body) for each in decode_messages(found.body, check_crc=True)]


def opened(folder: Path) -> MessageStore:
    return MessageStore(folder, segment_bytes=SEGMENT_BYTES, flush="async")


async def put(store: MessageStore, *numbers: int, topic: str = "orders") -> None:
    for number in numbers:
        body = b"%d " % number + b"." * 200
        await store.put(envelope(topic=topic), [entry(body)], store_ms=number + 1)


def tables_of(folder: Path) -> None:
    """Save tables as a broker does."""
    config = folder / "config"
    topic = {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    JsonTable(config / "topics.json").save(
        {"topicConfigTable": {"orders": topic}, "lives": {"orders": 17}, "lastLife": 17}
    )
    JsonTable(config / "subscriptionGroup.json").save({})
    JsonTable(config / "consumerOffset.json").save(
        {"offsetTable": {"orders@g": {"0": 3}}, "epochTable": {"orders@g": {"0": 5}}}
    )
    JsonTable(config / "orderlyLock.json").save({"a lock": 1})
    JsonTable(config / "replication.json").save({"logId": "x", "epoch": 3, "role": "master"})


def restore(source: Path, folder: Path) -> Manifest:
    return import_store(source, folder, restored=partial(restored_table, now_ms=NOW_MS))


def test_an_export_beside_the_running_store_has_all_messages_up_to_its_end(tmp_path: Path) -> None:
    async def run() -> None:
        store = opened(tmp_path / "data")
        store.start()
        tables_of(tmp_path / "data")
        await put(store, *range(30))
        manifest = export_store(tmp_path / "data", tmp_path / "backup", version="1")
        assert (manifest.messages, manifest.damaged) == (30, 0)
        await put(store, *range(30, 60))
        await store.close()
        restore(tmp_path / "backup", tmp_path / "new")
        assert check_store(tmp_path / "new").is_clean
        again = opened(tmp_path / "new")
        assert [int(body.split()[0]) for body in bodies(again, "orders")] == list(range(30))
        again.start()
        await put(again, 100)
        assert again.reader.end_offset(Topic("orders"), 0) == 31
        await again.close()

    asyncio.run(run())


def exported(tmp_path: Path, *, messages: int = 30) -> Path:
    async def run() -> None:
        store = opened(tmp_path / "data")
        store.start()
        await put(store, *range(messages))
        await store.close()

    asyncio.run(run())
    tables_of(tmp_path / "data")
    export_store(tmp_path / "data", tmp_path / "backup", version="1")
    return tmp_path / "backup"


def test_locks_and_the_identity_of_the_log_do_not_enter_a_backup(tmp_path: Path) -> None:
    names = {path.name for path in exported(tmp_path).rglob("*") if path.is_file()}
    assert {"topics.json", "consumerOffset.json", "subscriptionGroup.json", MANIFEST} <= names
    assert not {name for name in names if "Lock" in name or "replication" in name}


def test_topics_of_a_restored_log_begin_a_life_that_continues_the_former_one(
    tmp_path: Path,
) -> None:
    restore(exported(tmp_path), tmp_path / "new")
    table = JsonTable(tmp_path / "new" / "config" / "topics.json").load()
    assert table["lives"] == {"orders": NOW_MS}
    assert table["formerLives"] == {"orders": [{"life": 17, "ends": {"0": 30}}]}
    offsets = JsonTable(tmp_path / "new" / "config" / "consumerOffset.json").load()
    assert (offsets["offsetTable"], offsets["epochTable"]) == ({"orders@g": {"0": 3}}, {})


def test_each_restore_of_a_copy_begins_lives_of_its_own(tmp_path: Path) -> None:
    backup = exported(tmp_path)
    restore(backup, tmp_path / "one")
    export_store(tmp_path / "one", tmp_path / "second", version="1")
    restore(tmp_path / "second", tmp_path / "two")
    former = JsonTable(tmp_path / "two" / "config" / "topics.json").load()["formerLives"]["orders"]
    assert [each["life"] for each in former] == [17, NOW_MS]


def test_a_queue_whose_messages_are_all_deleted_keeps_its_next_offset(tmp_path: Path) -> None:
    async def run() -> None:
        store = opened(tmp_path / "data")
        store.start()
        await put(store, 1, 2, 3, topic="old")
        await put(store, *range(60))
        await store.checkpoint()
        while store.log.first_offset < 2 * SEGMENT_BYTES:
            await store.delete_expired(before_ms=None, keep_bytes=SEGMENT_BYTES)
        await store.close()
        tables_of(tmp_path / "data")
        export_store(tmp_path / "data", tmp_path / "backup", version="1")
        restore(tmp_path / "backup", tmp_path / "new")
        again = opened(tmp_path / "new")
        assert again.reader.next_offset(Topic("old"), 0) == 3
        first = again.reader.min_offset(Topic("orders"), 0)
        assert 0 < first < 60
        assert [int(body.split()[0]) for body in bodies(again, "orders")] == list(range(first, 60))
        await again.close()

    asyncio.run(run())


def test_files_that_retention_deletes_during_the_export_are_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"

    def deleting(*arguments: object) -> object:
        for path in sorted((data / "commitlog").iterdir())[:-1]:
            path.unlink()
        return written(*arguments)

    written = exporting.write_log
    monkeypatch.setattr(exporting, "write_log", deleting)
    backup = exported(tmp_path)
    assert Manifest.load(backup).messages == 30


def test_a_topic_deleted_during_the_export_makes_it_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, counted = tmp_path / "data", []

    def ending(*arguments: object, **more: object) -> int:
        if not counted:
            table = JsonTable(data / "config" / "topics.json")
            table.save({**table.load(), "deletions": 1})
        counted.append(1)
        return fixed_end(*arguments, **more)

    fixed_end: Callable[..., int] = exporting.fixed_end
    monkeypatch.setattr(exporting, "fixed_end", ending)
    exported(tmp_path)
    assert len(counted) == 2


@pytest.mark.parametrize("name", ["commitlog", "config", MANIFEST])
def test_a_flipped_byte_in_a_backup_is_named_and_nothing_is_restored(
    tmp_path: Path, name: str
) -> None:
    backup = exported(tmp_path)
    found = backup / name
    path = found if found.is_file() else min(found.iterdir())
    flip(40, 1)(path)
    with pytest.raises(StoreError) as refused:
        restore(backup, tmp_path / "new")
    assert str(path) in str(refused.value)
    assert not (tmp_path / "new" / "format").exists()


def test_a_missing_file_of_a_backup_is_named(tmp_path: Path) -> None:
    backup = exported(tmp_path)
    path = max((backup / "commitlog").iterdir())
    path.unlink()
    with pytest.raises(StoreError, match=path.name):
        restore(backup, tmp_path / "new")


def test_an_unfinished_export_is_no_backup(tmp_path: Path) -> None:
    backup = exported(tmp_path)
    (backup / MANIFEST).unlink()
    with pytest.raises(StoreError, match="not a complete backup"):
        restore(backup, tmp_path / "new")


def test_existing_data_is_never_overwritten(tmp_path: Path) -> None:
    backup = exported(tmp_path)
    with pytest.raises(StoreError, match="is not empty"):
        restore(backup, tmp_path / "data")
    with pytest.raises(StoreError, match="exists and is not an empty folder"):
        export_store(tmp_path / "data", backup, version="1")
    with pytest.raises(StoreError, match="inside of the data folder"):
        export_store(tmp_path / "data", tmp_path / "data" / "backup", version="1")
    with pytest.raises(StoreError, match="not a data folder"):
        export_store(tmp_path, tmp_path.parent / "other", version="1")


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    backup = exported(tmp_path)
    store = opened(tmp_path / "data")
    try:
        with pytest.raises(StoreError, match="in use by another broker"):
            restore(backup, tmp_path / "data")
    finally:
        store.abandon()


def test_an_interrupted_import_is_no_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = exported(tmp_path)
    with pytest.raises(RuntimeError):
        import_store(backup, tmp_path / "new", restored=lambda *_: _killed())
    with pytest.raises(StoreError, match="files of another program"):
        opened(tmp_path / "new")


def _killed() -> dict[str, object]:
    raise RuntimeError("killed")


def test_a_damaged_message_stays_damaged_and_all_others_are_restored(tmp_path: Path) -> None:
    exported(tmp_path)
    log = min((tmp_path / "data" / "commitlog").iterdir())
    flip(log.read_bytes().index(b"3 ..."), 1)(log)
    assert export_store(tmp_path / "data", tmp_path / "second", version="1").damaged == 1
    restore(tmp_path / "second", tmp_path / "new")
    store = opened(tmp_path / "new")
    assert store.reader.end_offset(Topic("orders"), 0) == 30
    store.abandon()


def test_the_values_of_a_nameserver_are_restored(tmp_path: Path) -> None:
    values = {"configTable": {"orderlane": {"group": "signed"}}}
    JsonTable(tmp_path / "ns" / "kvConfig.json").save(values)
    export_store(tmp_path / "ns", tmp_path / "backup", version="1")
    restore(tmp_path / "backup", tmp_path / "new")
    assert JsonTable(tmp_path / "new" / "kvConfig.json").load() == values
    with pytest.raises(StoreError, match="has the values of a nameserver"):
        restore(tmp_path / "backup", tmp_path / "new")


def test_a_backup_of_a_broker_has_the_values_of_the_nameserver_beside_it(tmp_path: Path) -> None:
    values = {"configTable": {"orderlane": {"group": "signed"}}}
    JsonTable(tmp_path / "data" / "nameserver" / "kvConfig.json").save(values)
    restore(exported(tmp_path), tmp_path / "new")
    assert JsonTable(tmp_path / "new" / "nameserver" / "kvConfig.json").load() == values


def test_a_folder_that_a_nameserver_uses_is_refused(tmp_path: Path) -> None:
    JsonTable(tmp_path / "ns" / "kvConfig.json").save({"configTable": {}})
    export_store(tmp_path / "ns", tmp_path / "backup", version="1")

    async def run() -> None:
        server = NameServer(data=tmp_path / "new")
        await server.start()
        with pytest.raises(StoreError, match="in use by another nameserver"):
            restore(tmp_path / "backup", tmp_path / "new")
        other = NameServer(data=tmp_path / "new")
        with pytest.raises(StoreError, match="in use by another nameserver"):
            await other.start()
        await server.close()
        restore(tmp_path / "backup", tmp_path / "new")

    asyncio.run(run())


def test_exports_beside_sends_and_retention_have_all_that_was_confirmed_before(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        store = opened(tmp_path / "data")
        store.start()
        tables_of(tmp_path / "data")
        confirmed, over = 0, False

        async def send_and_delete() -> None:
            nonlocal confirmed
            while not over:
                await put(store, confirmed)
                confirmed += 1
                if confirmed % 40 == 0:
                    await store.delete_expired(before_ms=None, keep_bytes=10 * SEGMENT_BYTES)
                await asyncio.sleep(0)

        await put(store, -1)
        sending = spawn(send_and_delete(), name="send")
        for number in range(8):
            before, backup = confirmed, tmp_path / f"backup-{number}"
            data = tmp_path / "data"
            manifest = await asyncio.to_thread(export_store, data, backup, version="1")
            assert manifest.damaged == 0
            restore(backup, tmp_path / f"new-{number}")
            again = opened(tmp_path / f"new-{number}")
            found = [int(body.split()[0]) for body in bodies(again, "orders")]
            assert found == list(range(found[0], found[-1] + 1))
            assert before - 1 <= found[-1]
            assert again.reader.end_offset(Topic("orders"), 0) == found[-1] + 2  # from -1 on
            again.abandon()
        over = True
        await sending
        await store.close()

    asyncio.run(run())


def test_the_incomplete_end_of_a_log_is_left_out(tmp_path: Path) -> None:
    exported(tmp_path)
    (tmp_path / "data" / "checkpoint.json").unlink()
    log = max((tmp_path / "data" / "commitlog").iterdir())
    content = log.read_bytes()
    log.write_bytes(content[: len(content.rstrip(b"\0")) - 7].ljust(len(content), b"\0"))
    manifest = export_store(tmp_path / "data", tmp_path / "second", version="1")
    assert (manifest.messages, manifest.damaged) == (29, 0)
    restore(tmp_path / "second", tmp_path / "new")
    assert check_store(tmp_path / "new").is_clean
    former = JsonTable(tmp_path / "new" / "config" / "topics.json").load()["formerLives"]["orders"]
    assert former == [{"life": 17, "ends": {"0": 29}}]  # not the 30 of the index


def test_damage_at_the_end_of_a_running_log_hides_no_message_behind_it(tmp_path: Path) -> None:
    async def run() -> None:
        store = opened(tmp_path / "data")
        store.start()
        tables_of(tmp_path / "data")
        await put(store, *range(10))
        log = max((tmp_path / "data" / "commitlog").iterdir())
        with log.open("r+b") as file:  # in place: the store has it open
            file.seek(log.read_bytes().index(b"8 ..."))
            file.write(b"x")
        manifest = export_store(tmp_path / "data", tmp_path / "backup", version="1")
        assert (manifest.messages, manifest.damaged) == (9, 1)
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(12))
def test_a_life_of_a_damaged_log_never_reaches_beyond_its_next_offsets(
    tmp_path: Path, seed: int
) -> None:
    """Otherwise a position behind it would count, and skip the next message."""
    exported(tmp_path)
    chooser = random.Random(seed)
    logs = sorted((tmp_path / "data" / "commitlog").iterdir())
    for log in chooser.sample(logs, k=2):
        used = len(log.read_bytes().rstrip(b"\0"))
        flip(chooser.randrange(used), 1 << chooser.randrange(8))(log)
    if seed % 2:
        shutil.rmtree(tmp_path / "data" / "consumequeue")
    manifest = export_store(tmp_path / "data", tmp_path / "second", version="1")
    restore(tmp_path / "second", tmp_path / "new")
    table = JsonTable(tmp_path / "new" / "config" / "topics.json").load()
    (former,) = table["formerLives"]["orders"]
    store = opened(tmp_path / "new")
    assert former["ends"].get("0", 0) <= store.reader.next_offset(Topic("orders"), 0)
    assert manifest.messages >= 27
    store.abandon()


def test_queues_that_are_deleted_during_an_export_do_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("orders", "refunds", "gone.4000.dropped"):
        (tmp_path / topic / "0").mkdir(parents=True)
        (tmp_path / topic / "0" / f"{0:020d}").write_bytes(b"x" * 40)
    listed = Path.iterdir

    def deleted(path: Path) -> Iterator[Path]:
        if path.parent.name == "refunds":
            shutil.rmtree(path.parent)
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", deleted)
    assert exporting.queue_ends(tmp_path) == {"orders": {0: 2}}


@pytest.mark.parametrize("topic", ["../../elsewhere", "..", "/elsewhere", ""])
def test_a_backup_that_was_tampered_with_writes_nothing_elsewhere(
    tmp_path: Path, topic: str
) -> None:
    (tmp_path / "backup").mkdir()
    ends = {Topic(topic): {0: 5}}
    Manifest("broker", "1", NOW_MS, known_ends=ends).save(tmp_path / "backup")
    with pytest.raises(StoreError, match=r"is not the manifest of a backup: .* is not a topic"):
        import_store(
            tmp_path / "backup", tmp_path / "d", restored=partial(restored_table, now_ms=NOW_MS)
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup"]
