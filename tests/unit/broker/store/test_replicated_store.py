"""Copies of a log: equal byte for byte, visible once confirmed, truncated where they differ."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import shutil
from pathlib import Path
from typing import TypeVar

import pytest

from broker_core.errors import StoreError
from broker_core.names import TIMER_TOPIC, DelayedPlace, Topic
from broker_core.remoting.delay_properties import DUE
from broker_core.remoting.message import encode_properties
from broker_core.remoting.record_encoding import BatchEntry
from broker_core.store import appending, unconfirmed
from broker_core.store.check import check_store
from broker_core.store.copies import Copied
from broker_core.store.copying import Chunk
from broker_core.store.log_scan import LogScan, ReadableLog
from broker_core.store.message_store import MessageStore
from broker_core.store.pending import Pending
from broker_core.store.reader import ReadStatus
from broker_core.store.rejoin import Rejoin
from broker_core.store.replicated_store import ReplicatedStore
from broker_core.store.tables import JsonTable
from broker_core.tasks import spawn
from testkit.eventually import eventually
from tests.support.store_messages import TOPIC, entry, envelope
from tests.unit.broker.store.replicated_stores import (
    QUEUES,
    SEGMENT,
    assert_equal,
    bodies,
    catch_up,
    damage,
    log_of,
    master_at,
    slave_at,
)

T = TypeVar("T")


class Made:
    """Messages in lists that a test makes: other tests may have left some in the process."""

    def __init__(self) -> None:
        self._others = self._all()

    def of(self, kind: type[T]) -> list[T]:
        """Return those of that kind."""
        others = {id(each) for each in self._others}
        return [each for each in self._all() if type(each) is kind and id(each) not in others]

    def _all(self) -> list[object]:
        gc.collect()
        return [each for each in gc.get_objects() if type(each) in (Pending, Copied)]


@pytest.fixture
def made() -> Made:
    return Made()


async def fill(store: MessageStore, count: int, *, chooser: random.Random) -> None:
    for _ in range(count):
        bodies = [
            chooser.randbytes(chooser.randrange(0, 600)) for _ in range(chooser.choice((1, 3)))
        ]
        await store.put(
            envelope(chooser.randrange(QUEUES)), [entry(body) for body in bodies], store_ms=1000
        )


@pytest.mark.parametrize("seed", range(4))
async def test_a_copy_is_equal_whatever_its_own_segments_would_be(
    tmp_path: Path, seed: int
) -> None:
    chooser = random.Random(seed)
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s", segment_bytes=9000)
    for _ in range(5):
        await fill(master, 8, chooser=chooser)
        await catch_up(master, slave, chunks=chooser.choice((1, 2, 10_000)))
        if chooser.random() < 0.5:
            slave.abandon()  # what it has copied is in its log, confirmed or not
            slave = slave_at(tmp_path / "s", segment_bytes=9000)
    await catch_up(master, slave)
    slave.confirm(master.durable_end)
    assert_equal(master, slave)
    await slave.close()
    await master.close()


async def test_what_is_not_confirmed_is_in_no_queue_also_after_a_restart(tmp_path: Path) -> None:
    chooser = random.Random(7)
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    await fill(master, 10, chooser=chooser)
    confirmed = master.durable_end
    served = [bodies(master, queue_id) for queue_id in range(QUEUES)]
    await fill(master, 10, chooser=chooser)
    await catch_up(master, slave)
    assert [bodies(slave, queue_id) for queue_id in range(QUEUES)] == [[]] * QUEUES
    slave.confirm(confirmed)
    assert [bodies(slave, queue_id) for queue_id in range(QUEUES)] == served
    await slave.close()

    slave = slave_at(tmp_path / "s")
    assert [bodies(slave, queue_id) for queue_id in range(QUEUES)] == served
    slave.confirm(master.durable_end)
    assert_equal(master, slave)
    slave.abandon()  # nothing was saved since: visible again once it is confirmed
    slave = slave_at(tmp_path / "s")
    slave.confirm(master.durable_end)
    assert_equal(master, slave)
    await slave.close()
    await master.close()


async def test_a_master_whose_log_is_held_gives_offsets_behind_what_is_not_visible(
    tmp_path: Path,
) -> None:
    store = slave_at(tmp_path)
    await store.put(envelope(0), [entry(b"a")], store_ms=1)
    assert bodies(store, 0) == []
    store.abandon()
    store = slave_at(tmp_path)
    stored = await store.put(envelope(0), [entry(b"b")], store_ms=1)
    assert stored.first_queue_offset == 1
    assert bodies(store, 0) == []
    store.confirm(stored.log_end)
    assert bodies(store, 0) == [b"a", b"b"]
    await store.close()


async def test_a_checkpoint_ends_before_a_put_of_which_a_part_alone_is_confirmed(
    tmp_path: Path,
) -> None:
    """A slave that is behind confirms ends of chunks, which are unrelated to puts."""
    store = slave_at(tmp_path)
    first = await store.put(envelope(0), [entry(b"first")], store_ms=1)
    parts = [(envelope(queue_id), [entry(b"%d" % queue_id)]) for queue_id in range(QUEUES)]
    together = await store.put_all(parts, store_ms=1)
    await store.put(envelope(2), [entry(b"last")], store_ms=1)
    for part in together[1:]:
        store.confirm(part.physical_offsets[0])
        assert store.visible_end == first.log_end
    await store.checkpoint()
    store.abandon()

    store = slave_at(tmp_path)
    assert store.visible_end == first.log_end
    assert [bodies(store, queue_id) for queue_id in range(QUEUES)] == [[b"first"], [], []]
    store.confirm(store.end_offset)
    everything = [[b"first", b"0"], [b"1"], [b"2", b"last"]]
    assert [bodies(store, queue_id) for queue_id in range(QUEUES)] == everything
    assert store.visible_end == store.end_offset
    for queue_id, before in enumerate(everything):
        stored = await store.put(envelope(queue_id), [entry(b"new")], store_ms=2)
        assert stored.first_queue_offset == len(before)
    await store.close()


def lose_entries(folder: Path) -> None:
    """Make the next start rebuild all queues."""
    shutil.rmtree(folder / "consumequeue" / TOPIC / "0")


async def test_what_was_confirmed_is_known_though_starts_that_rebuild_are_killed(
    tmp_path: Path,
) -> None:
    store = slave_at(tmp_path)
    stored = await store.put(envelope(0), [entry(b"%d" % n) for n in range(9)], store_ms=1)
    store.confirm(stored.log_end)
    await store.checkpoint()
    await store.put(envelope(0), [entry(b"unconfirmed")], store_ms=1)
    store.abandon()
    lose_entries(tmp_path)
    for _ in range(3):
        store = slave_at(tmp_path)
        assert store.recovery.rebuilt
        assert store.visible_end == store.confirmed_end == stored.log_end
        assert bodies(store, 0) == [b"%d" % n for n in range(9)]
        store.abandon()
    store = slave_at(tmp_path)
    await store.close()
    store = slave_at(tmp_path)
    assert not store.recovery.rebuilt
    assert store.visible_end == stored.log_end
    await store.close()


async def test_nothing_comes_in_place_of_confirmed_bytes_that_the_disk_lost(
    tmp_path: Path,
) -> None:
    store = slave_at(tmp_path)
    ends = [
        (await store.put(envelope(0), [entry(body)], store_ms=1)).log_end
        for body in (b"kept", b"lost")
    ]
    store.confirm(ends[1])
    await store.close()
    os.truncate(tmp_path / "commitlog" / ("0" * 20), ends[1] - 1)
    store = slave_at(tmp_path)
    assert store.recovery.lost_bytes
    await store.put(envelope(0), [entry(b"unconfirmed")], store_ms=1)
    assert store.end_offset > ends[1]
    store.abandon()
    store = slave_at(tmp_path)
    assert store.visible_end == ends[1]
    assert bodies(store, 0) == [b"kept"]
    assert store.reader.read(TOPIC, 0, 1, max_messages=1).status is ReadStatus.DAMAGED
    assert store.reader.end_offset(TOPIC, 0) == 2
    await store.close()


async def test_a_start_that_finds_no_room_for_what_was_confirmed_rebuilds_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = slave_at(tmp_path)
    stored = await store.put(envelope(0), [entry(b"a")], store_ms=1)
    store.confirm(stored.log_end)
    await store.close()
    lose_entries(tmp_path)

    def full(table: JsonTable, content: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(JsonTable, "save", full)
        store = slave_at(tmp_path)
        assert bodies(store, 0) == [b"a"]
        store.abandon()
    store = slave_at(tmp_path)
    assert store.recovery.rebuilt
    store.confirm(stored.log_end)
    assert bodies(store, 0) == [b"a"]
    await store.close()


async def test_what_is_visible_of_a_copy_ends_behind_a_message_also_if_less_is_confirmed(
    tmp_path: Path,
) -> None:
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    ends = [(await master.put(envelope(0), [entry(b"x")], store_ms=1)).log_end for _ in range(2)]
    await catch_up(master, slave)
    for confirmed, visible in ((1, 0), (ends[0], ends[0]), (ends[1] - 1, ends[0])):
        slave.confirm(confirmed)
        assert slave.visible_end == visible
    slave.confirm(ends[1])
    assert slave.visible_end == ends[1]
    await slave.close()
    await master.close()


async def test_a_chunk_that_is_garbled_or_out_of_place_is_refused_whole(tmp_path: Path) -> None:
    chooser = random.Random(3)
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    await fill(master, 4, chooser=chooser)
    chunk = master.copies.chunk(0, limit=master.durable_end)
    assert chunk is not None
    garbled = [
        chunk._replace(data=chunk.data[:at] + bytes([chunk.data[at] ^ 1]) + chunk.data[at + 1 :])
        for at in (0, 5, 30, 86, 90, len(chunk.data) // 2)
    ]
    elsewhere = Chunk(100, chunk.data, 0, SEGMENT)
    for wrong in (*garbled, elsewhere, chunk._replace(data=chunk.data[:-1])):
        with pytest.raises(StoreError):
            await slave.copy(wrong)
        assert slave.copies.end_offset == 0
    await slave.copy(chunk)
    await slave.close()
    await master.close()


def common_end_of(mine: MessageStore, other: MessageStore) -> int:
    """Return the common end as two brokers find it, question by question."""
    search = mine.copies.common_end_search()
    for _ in range(20):
        if (common_end := search.answered(other.copies.count_common(search.probes))) is not None:
            return common_end
    raise AssertionError("the search does not end")


@pytest.mark.parametrize(("common", "mine", "theirs"), [(20, 30, 25), (0, 9, 9), (300, 1, 30)])
async def test_logs_that_part_are_cut_at_the_joint_and_go_on_together(
    tmp_path: Path, common: int, mine: int, theirs: int
) -> None:
    chooser = random.Random(common)
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    await fill(master, common, chooser=chooser)
    await catch_up(master, slave)
    common_end = master.durable_end
    slave.confirm(common_end)
    assert common_end_of(slave, master) == common_end, "it holds all of it"
    await slave.close()
    fork = master_at(tmp_path / "s")  # was a master for a while
    await fill(fork, mine, chooser=chooser)
    await fill(master, theirs, chooser=chooser)

    found = common_end_of(fork, master)
    assert found == common_end
    fork.copies.plan_rejoin(Rejoin(found, found))
    await fork.close()
    slave = slave_at(tmp_path / "s")
    assert slave.copies.end_offset == common_end
    assert list((tmp_path / "s" / "commitlog").glob("*.dropped"))
    await catch_up(master, slave)
    slave.confirm(master.durable_end)
    assert_equal(master, slave)
    await slave.close()
    await master.close()


async def test_a_copy_starts_over_behind_what_retention_took(tmp_path: Path) -> None:
    chooser = random.Random(5)
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    await master.put(envelope(9), [entry(b"once")] * 2, store_ms=1)
    await fill(master, 5, chooser=chooser)
    await catch_up(master, slave)
    slave.confirm(slave.copies.end_offset)
    await fill(master, 40, chooser=chooser)
    assert await master.delete_expired(before_ms=None, keep_bytes=3 * SEGMENT)
    assert master.copies.first_offset > slave.copies.end_offset
    rejoin = Rejoin(master.copies.first_offset, 0, master.copies.queue_starts())
    slave.copies.plan_rejoin(rejoin)
    await slave.close()
    for _ in range(2):  # killed before it copied anything: it begins at the given offsets, or at 0
        slave = slave_at(tmp_path / "s")
        assert slave.copies.end_offset in (0, rejoin.end)
        assert slave.reader.end_offset(TOPIC, 9) == 2, "offsets are never given twice"
        slave.abandon()
    JsonTable(tmp_path / "s" / "rejoin.json").save(rejoin.to_table())
    slave = slave_at(tmp_path / "s")
    await catch_up(master, slave)
    slave.confirm(master.durable_end)
    assert_equal(master, slave)
    await slave.close()
    slave = slave_at(tmp_path / "s")
    slave.confirm(master.durable_end)
    assert_equal(master, slave)
    assert slave.reader.end_offset(TOPIC, 9) == 2
    await slave.close()
    await master.close()


@pytest.mark.parametrize("early", [True, False])
async def test_a_failing_listener_keeps_no_send_from_being_answered(
    tmp_path: Path, early: bool
) -> None:
    """It is called where a sync ends, or where other replicas confirm."""

    def broken(*_: object) -> None:
        raise RuntimeError("listener")

    store = ReplicatedStore(tmp_path, segment_bytes=SEGMENT)
    store.start(broken)
    if early:
        store.confirm(1_000_000)
    master = master_at(tmp_path / "m")
    for body in (b"a", b"b"):
        await master.put(envelope(0), [entry(body)], store_ms=1)
        async with asyncio.timeout(5):
            await catch_up(master, store)
    store.confirm(1_000_000)
    assert bodies(store, 0) == [b"a", b"b"]
    await store.close()
    await master.close()


@pytest.mark.parametrize("restart", [False, True])
async def test_a_short_segment_of_a_full_disk_is_copied_and_followed_by_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    chooser = random.Random(11)
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s", segment_bytes=9000)
    await fill(master, 8, chooser=chooser)
    allocate = os.posix_fallocate

    def nearly_full(descriptor: int, start: int, size: int) -> None:
        if size >= SEGMENT:
            raise OSError(28, "No space left on device")
        allocate(descriptor, start, size)

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", nearly_full)
        for size in (3000, 100, 3000):
            parts = [(envelope(0), [entry(bytes(size))])]
            await master.put_all(parts, store_ms=1000, short_segment=True)
    await catch_up(master, slave, chunks=2)
    if restart:
        master.abandon()
        slave.abandon()
        master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s", segment_bytes=9000)
    await fill(master, 10, chooser=chooser)
    await catch_up(master, slave)
    slave.confirm(master.durable_end)
    assert_equal(master, slave)
    lengths = [len(content) for content in log_of(master).values()]
    assert min(lengths) < 3300
    await slave.close()
    await master.close()


@pytest.mark.parametrize("seed", range(4))
async def test_messages_that_wait_for_replicas_use_bounded_memory_and_become_visible_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Made, seed: int
) -> None:
    """Most are in the log alone. A deletion among them ends the messages before it."""
    monkeypatch.setattr(appending, "MOST_LISTED", 5, raising=False)
    monkeypatch.setattr(appending, "LISTED_AT_ONCE", 3, raising=False)
    chooser, store, ends = random.Random(seed), slave_at(tmp_path), list[int]()
    for _ in range(30):
        await fill(store, 1, chooser=chooser)
        ends.append(store.durable_end)
    deletion = spawn(store.delete_topic(TOPIC, store_ms=1000), name="delete")
    await eventually(lambda: store.durable_end > ends[-1])
    assert store.is_deletion_pending(TOPIC)
    await store.put(envelope(0, "refunds"), [entry(b"last")], store_ms=1000)
    assert len(made.of(Pending)) <= 5
    offsets = {each: store.reader.next_offset(TOPIC, each) for each in range(QUEUES)}
    for end in sorted(chooser.sample(ends, 10)):
        store.confirm(end - chooser.choice((0, 1)))
        seen = {each: bodies(store, each) for each in range(QUEUES)}
    store.confirm(ends[-1])
    assert {each: len(bodies(store, each)) for each in range(QUEUES)} == offsets
    assert all(bodies(store, each)[: len(seen[each])] == seen[each] for each in range(QUEUES))
    store.confirm(store.durable_end)
    await deletion
    assert [bodies(store, each) for each in range(QUEUES)] == [[]] * QUEUES
    assert store.reader.end_offset(Topic("refunds"), 0) == 1
    assert store.visible_end == store.end_offset
    stored = await store.put(envelope(0), [entry(b"new")], store_ms=1000)
    store.confirm(stored.log_end)
    assert bodies(store, 0) == [b"new"]
    await store.close()
    assert check_store(tmp_path).is_clean


@pytest.mark.parametrize("hit", [0, 3, 8, 9])
async def test_a_waiting_message_that_is_damaged_keeps_its_offset_when_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hit: int
) -> None:
    """Whether others of its queue, or of the log, follow it or not."""
    monkeypatch.setattr(appending, "MOST_LISTED", 2)
    monkeypatch.setattr(appending, "LISTED_AT_ONCE", 3)
    store = slave_at(tmp_path)
    for body in (b"a", b"b"):
        await store.put(envelope(2), [entry(body)], store_ms=1)
    waiting: list[int] = []
    for n in range(10):  # the last ones of queues 0 and 1 are 8 and 9
        stored = await store.put(envelope(n % 2), [entry(b"%d" % n * 300)], store_ms=1)
        waiting += stored.physical_offsets
    damage(tmp_path, waiting[hit] + 100)
    store.confirm(store.durable_end)
    assert store.visible_end == store.end_offset
    queue_id, lost = hit % 2, hit // 2
    for number in range(2):
        stored = await store.put(envelope(number), [entry(b"new")], store_ms=1)
        assert stored.first_queue_offset == 5
    store.confirm(store.durable_end)
    for restart in (False, True):
        if restart:
            await store.close()
            store = slave_at(tmp_path)
            assert not store.recovery.rebuilt
        found = [store.reader.read(TOPIC, queue_id, n, max_messages=1).status for n in range(6)]
        assert found == [ReadStatus.DAMAGED if n == lost else ReadStatus.FOUND for n in range(6)]
        assert len(bodies(store, 1 - queue_id)) == 6
    await store.close()


async def test_a_waiting_deletion_that_is_damaged_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the topic would refuse messages until a restart."""
    monkeypatch.setattr(appending, "MOST_LISTED", 1)
    store = slave_at(tmp_path)
    stored = await store.put(envelope(0), [entry(b"old")], store_ms=1)
    deletion = spawn(store.delete_topic(TOPIC, store_ms=1), name="delete")
    await eventually(lambda: store.durable_end > stored.log_end)
    damage(tmp_path, stored.log_end + 100)
    store.confirm(store.durable_end)
    async with asyncio.timeout(1):
        await deletion
    assert (await store.put(envelope(0), [entry(b"new")], store_ms=1)).first_queue_offset == 0
    store.confirm(store.durable_end)
    assert bodies(store, 0) == [b"new"]
    await store.close()


async def test_the_log_is_not_read_again_for_ever_once_replicas_have_nearly_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a steady load the last message is never confirmed, so the backlog is never empty."""
    monkeypatch.setattr(appending, "MOST_LISTED", 5)
    reads: list[int] = []

    class Counted(LogScan):
        def __init__(self, log: ReadableLog, *, start: int, until: int | None = None) -> None:
            reads.append(start)
            super().__init__(log, start=start, until=until)

    monkeypatch.setattr(appending, "LogScan", Counted)
    store = slave_at(tmp_path)
    for _ in range(20):
        await store.put(envelope(0), [entry()], store_ms=1)
    confirmed = store.durable_end
    for _ in range(20):
        await store.put(envelope(0), [entry()], store_ms=1)
        store.confirm(confirmed)
        confirmed = store.durable_end
    assert 0 < len(reads) <= 3
    store.confirm(confirmed)
    assert len(bodies(store, 0)) == 40
    await store.close()


async def test_a_batch_counts_with_all_its_messages_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    monkeypatch.setattr(appending, "MOST_LISTED", 50)
    store = slave_at(tmp_path)
    for _ in range(40):
        await store.put(envelope(0), [entry(b"")] * 20, store_ms=1)
    listed = made.of(Pending)
    assert sum(len(added.entries) for put in listed for added in put.added) <= 60
    store.confirm(store.durable_end)
    assert len(bodies(store, 0)) == 800
    await store.close()


@pytest.mark.parametrize("restart", [False, True])
async def test_few_bytes_of_waiting_messages_are_read_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Made, *, restart: bool
) -> None:
    """A thousand messages of megabytes would stop all else for seconds."""
    for module in (appending, unconfirmed):
        monkeypatch.setattr(module, "MOST_LISTED", 2)
        monkeypatch.setattr(module, "LISTED_BYTES", 1000, raising=False)
    store, ends = slave_at(tmp_path), list[int]()
    for n in range(40):
        ends.append((await store.put(envelope(0), [entry(b"%d" % n * 300)], store_ms=1)).log_end)
    if restart:
        await store.close()
        store = slave_at(tmp_path)
    kind = Copied if restart else Pending
    store.confirm(ends[2])
    assert 0 < len(made.of(kind)) <= 4
    store.confirm(ends[-1])
    assert len(bodies(store, 0)) == 40
    await store.close()


@pytest.mark.parametrize("seed", range(8))
async def test_a_copy_lists_few_unconfirmed_messages_and_shows_all_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Made, seed: int
) -> None:
    """Whatever is deleted, confirmed, killed, or removed from its log in between."""
    monkeypatch.setattr(unconfirmed, "MOST_LISTED", 4)
    monkeypatch.setattr(unconfirmed, "LISTED_AT_ONCE", 3)
    chooser = random.Random(seed)
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    for _ in range(8):
        await fill(master, chooser.randrange(12), chooser=chooser)
        if chooser.random() < 0.3:
            await master.delete_topic(TOPIC, store_ms=1000)
        await catch_up(master, slave, chunks=chooser.choice((1, 2, 10_000)))
        assert len(made.of(Copied)) <= 10  # perhaps of a killed store, too
        if chooser.random() < 0.5:
            slave.confirm(slave.copies.end_offset - chooser.choice((0, 1, 900)))
        match chooser.choice(("stay", "kill", "close", "cut")):
            case "kill":
                slave.abandon()
                slave = slave_at(tmp_path / "s")
            case "close":
                await slave.close()
                slave = slave_at(tmp_path / "s")
            case "cut":
                places = [each.offset for each in slave.copies.common_end_search().probes]
                if places:
                    place = chooser.choice(places)
                    rejoin = Rejoin(place, min(slave.visible_end, place))
                    slave.copies.plan_rejoin(rejoin)
                    await slave.close()
                    slave = slave_at(tmp_path / "s")
                    assert slave.copies.end_offset == place
        assert len(made.of(Copied)) <= 10
    await catch_up(master, slave)
    slave.confirm(slave.copies.end_offset)
    assert_equal(master, slave)
    assert slave.visible_end == slave.end_offset
    await slave.close()
    await master.close()
    assert check_store(tmp_path / "s").is_clean


@pytest.mark.parametrize("seed", range(4))
async def test_a_master_lists_few_unconfirmed_messages_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Made, seed: int
) -> None:
    monkeypatch.setattr(unconfirmed, "MOST_LISTED", 4)
    monkeypatch.setattr(unconfirmed, "LISTED_AT_ONCE", 3)
    monkeypatch.setattr(appending, "MOST_LISTED", 4)
    chooser = random.Random(seed)
    store = slave_at(tmp_path)
    await fill(store, 20, chooser=chooser)
    offsets = [store.reader.next_offset(TOPIC, each) for each in range(QUEUES)]
    store.abandon()
    store = slave_at(tmp_path)
    assert len(made.of(Copied)) <= 4
    assert [store.reader.next_offset(TOPIC, each) for each in range(QUEUES)] == offsets
    for queue_id in range(QUEUES):
        stored = await store.put(envelope(queue_id), [entry(b"new")] * 5, store_ms=1000)
        assert stored.first_queue_offset == offsets[queue_id]
    ends = [number * store.end_offset // 9 for number in range(10)]
    for end in ends:
        store.confirm(end)
    assert [len(bodies(store, each)) for each in range(QUEUES)] == [each + 5 for each in offsets]
    assert store.visible_end == store.end_offset
    await store.close()
    assert check_store(tmp_path).is_clean


async def test_a_delayed_message_that_ended_unconfirmed_does_not_wait_again_after_a_restart(
    tmp_path: Path,
) -> None:
    store = slave_at(tmp_path)
    due = entry_due_at(5)
    for _ in range(2):
        waits = await store.put(envelope(topic=TIMER_TOPIC), [due], store_ms=1)
    store.confirm(waits.log_end)
    first = DelayedPlace(18, 0)
    await store.put(envelope()._replace(prepared_offset=-first.number), [entry()], store_ms=1)
    store.abandon()  # without a checkpoint: nothing counts as confirmed
    store = slave_at(tmp_path)
    assert store.visible_end == 0
    store.confirm(store.end_offset)
    assert list(store.delays.waiting({})) == [(5, DelayedPlace(18, 1))]
    await store.close()


async def copy_examined(master: MessageStore, slave: ReplicatedStore) -> None:
    copies, limit = master.copies, master.durable_end
    while (chunk := copies.examined(slave.copies.end_offset, limit=limit)) is not None:
        await slave.copy(chunk)


def entry_due_at(ms: int) -> BatchEntry:
    return BatchEntry(0, b"", encode_properties({DUE: str(ms)}))


@pytest.mark.parametrize("hit", [0, 5, 7])
async def test_an_unconfirmed_message_that_a_start_finds_damaged_keeps_its_offset(
    tmp_path: Path, hit: int
) -> None:
    """Its slave, too, leaves the offset out, whether another one of the queue follows or not."""
    master, slave = slave_at(tmp_path / "m"), slave_at(tmp_path / "s")
    places: list[int] = []
    for n in range(9):  # queue 1 ends with 7, queue 2 with 5 and queue 0 with 8
        queue_id = 0 if n in (6, 8) else 1 if n == 7 else n % QUEUES
        stored = await master.put(envelope(queue_id), [entry(b"%d" % n * 300)], store_ms=1)
        places += stored.physical_offsets
    offsets = [master.reader.next_offset(TOPIC, each) for each in range(QUEUES)]
    master.abandon()
    damage(tmp_path / "m", places[hit] + 100)
    master = slave_at(tmp_path / "m")
    await copy_examined(master, slave)
    for queue_id in range(QUEUES):
        stored = await master.put(envelope(queue_id), [entry(b"new")], store_ms=1)
        assert stored.first_queue_offset == offsets[queue_id]
    await copy_examined(master, slave)
    lost = {0: (0, 0), 5: (2, 1), 7: (1, 2)}[hit]
    for store in (master, slave):
        store.confirm(store.end_offset)
        assert store.visible_end == store.end_offset
        for queue_id, end in enumerate(offsets):
            assert store.reader.end_offset(TOPIC, queue_id) == end + 1
            for offset in range(end + 1):
                found = store.reader.read(TOPIC, queue_id, offset, max_messages=1)
                is_lost = (queue_id, offset) == lost
                assert found.status is (ReadStatus.DAMAGED if is_lost else ReadStatus.FOUND)
        await store.close()
