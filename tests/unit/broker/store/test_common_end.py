"""The logs that a master accepts as the beginning of its own: those that are equal up to their
end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store.message_store import MessageStore
from broker_core.store.replicated_store import ReplicatedStore
from tests.support.store_messages import entry, envelope

SEGMENT = 4000


def master_at(folder: Path) -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT)
    store.start()
    return store


def slave_at(folder: Path) -> ReplicatedStore:
    store = ReplicatedStore(folder, segment_bytes=SEGMENT)
    store.start()
    return store


async def copy(master: MessageStore, slave: ReplicatedStore) -> None:
    """Copy one chunk: to the end of the log, or of its segment."""
    chunk = master.copies.chunk(slave.copies.end_offset, limit=master.durable_end)
    assert chunk is not None
    await slave.copy(chunk)


def joins(slave: MessageStore, master: MessageStore) -> bool:
    """Return whether *master* lets the slave continue its log, as two brokers decide."""
    search = slave.copies.common_end_search()
    for _ in range(20):
        probes, end = search.probes, slave.copies.end_offset
        common = master.copies.count_common(probes)
        if common == len(probes) and master.copies.can_continue(
            probes[-1] if probes else None, end
        ):
            return True
        if search.answered(common) is not None:
            return False
    raise AssertionError("the search does not end")


@pytest.mark.parametrize(
    ("before", "since"),
    [((2000, 2000), (2000, 2000)), ((3800,), (500, 3800))],
    ids=["other messages", "fewer messages"],
)
async def test_a_log_whose_last_segment_the_new_master_filled_otherwise_is_cut(
    tmp_path: Path, before: tuple[int, ...], since: tuple[int, ...]
) -> None:
    """The slave has the old master's end of the segment, which the new one never had."""
    old, new = master_at(tmp_path / "old"), slave_at(tmp_path / "new")
    for n in range(3):
        await old.put(envelope(), [entry(b"%d" % n)], store_ms=1)
    await copy(old, new)
    new.confirm(old.durable_end)
    await new.close()
    promoted = master_at(tmp_path / "new")
    for master, lengths, byte in ((old, before, b"b"), (promoted, since, b"s")):
        for length in lengths:  # the last one goes to the next segment
            await master.put(envelope(), [entry(byte * length)], store_ms=2)
    slave = slave_at(tmp_path / "slave")
    await copy(old, slave)
    assert slave.copies.end_offset == SEGMENT
    assert joins(slave, old)
    assert not joins(slave, promoted)
    for store in (slave, promoted, old):
        await store.close()


async def test_a_log_of_which_the_master_has_nothing_any_more_is_no_start_of_its_own(
    tmp_path: Path,
) -> None:
    """It ends where the master's begins, so that nothing can be compared."""
    master, other = master_at(tmp_path / "m"), master_at(tmp_path / "o")
    for store, byte in ((master, b"m"), (other, b"o")):
        for _ in range(3):
            await store.put(envelope(), [entry(byte * 3000)], store_ms=1)
    slave = slave_at(tmp_path / "s")
    await copy(other, slave)
    assert await master.delete_expired(before_ms=None, keep_bytes=SEGMENT) == 1
    assert master.copies.first_offset == slave.copies.end_offset
    assert not joins(slave, master)
    for each in (slave, other, master):
        await each.close()
