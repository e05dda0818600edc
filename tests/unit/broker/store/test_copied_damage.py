"""A log that is damaged in the middle is copied: everything intact, at the same offsets, and with
the damage known.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker_core.errors import StoreError
from broker_core.remoting.message import decode_messages
from broker_core.store.copying import messages_of
from broker_core.store.damaged_copies import examined_chunk
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import ReadStatus
from broker_core.store.replicated_store import ReplicatedStore
from tests.support.store_messages import TOPIC, entry, envelope
from tests.unit.broker.store.replicated_stores import QUEUES, log_of, master_at, slave_at

COUNT = 60


def body_of(number: int) -> bytes:
    return b"message %d " % number + bytes(number % 7 * 20)


async def fill(store: MessageStore, count: int = COUNT, *, first: int = 0) -> list[int]:
    """Put messages into the queues in turn; return their places."""
    places: list[int] = []
    for number in range(first, first + count):
        stored = await store.put(envelope(number % QUEUES), [entry(body_of(number))], store_ms=1000)
        places += stored.physical_offsets
    return places


async def copy_all(master: MessageStore, slave: ReplicatedStore) -> None:
    """Do as a slave and its master do."""
    while True:
        offset, limit = slave.copies.end_offset, master.durable_end
        try:
            chunk = master.copies.chunk(offset, limit=limit)
            if chunk is not None:
                messages_of(chunk)
        except StoreError:
            chunk = master.copies.examined(offset, limit=limit)
        if chunk is None:
            break
        await slave.copy(chunk)
    slave.confirm(master.durable_end)


def read_all(store: MessageStore) -> dict[tuple[int, int], bytes | None]:
    """Return the bodies by queue and offset, None for damaged ones."""
    found: dict[tuple[int, int], bytes | None] = {}
    for queue_id in range(QUEUES):
        offset = store.reader.min_offset(TOPIC, queue_id)
        while offset < store.reader.end_offset(TOPIC, queue_id):
            result = store.reader.read(TOPIC, queue_id, offset, max_messages=1)
            if result.status is ReadStatus.DAMAGED:
                found[queue_id, offset] = None
                offset += 1
                continue
            assert result.status is ReadStatus.FOUND
            for message in decode_messages(result.body, check_crc=True):
                found[queue_id, message.queue_offset] = message.body
            offset = result.next_offset
    return found


def damage(store: MessageStore, place: int, data: bytes) -> None:
    segment = store.log.segment_at(place)
    assert segment is not None
    with segment.path.open("r+b") as file:
        file.seek(place - segment.start)
        file.write(data)


#: What is written where, relative to message 20, and how many messages it costs.
DAMAGES = {
    "a byte of the body": (95, b"\xff", 1),
    "the length": (0, b"\x00\x00\x00\x03", 1),
    "a length that is too large": (0, b"\x7f\xff\xff\xff", 1),
    "the magic": (4, bytes(4), 1),
    "zeros over some messages": (0, bytes(700), 4),
    "noise over some messages": (10, random.Random(3).randbytes(1500), 9),
    "noise up to the end of the segment": (10, random.Random(3).randbytes(9000), 60),
    "noise up to the filler": (10, b"", 60),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_everything_intact_is_copied_and_the_rest_is_known(tmp_path: Path, name: str) -> None:
    at, data, most_lost = DAMAGES[name]
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    places = await fill(master)
    segment = master.log.segment_at(places[20])
    assert segment is not None
    following = master.log.segment_at(segment.end)
    assert following is not None
    if not data:
        end = next(place for place in places if place >= following.start)
        last = max(place for place in places if place < end)
        data = random.Random(3).randbytes(last - places[20] + 60 - at)
    damage(master, places[20] + at, data[: segment.end - places[20] - at])

    await copy_all(master, slave)
    assert log_of(slave) == log_of(master)
    found = read_all(slave)
    assert found == read_all(master)
    lost = [number for number in range(COUNT) if found[number % QUEUES, number // QUEUES] is None]
    assert 20 in lost
    assert len(lost) <= most_lost
    assert all(
        body in (None, body_of(offset * QUEUES + queue_id))
        for (queue_id, offset), body in found.items()
    )
    assert len(slave.reader.damaged) == len(lost)

    await fill(master, 9, first=COUNT)  # behind it all is as ever
    await copy_all(master, slave)
    assert read_all(slave) == read_all(master)
    assert log_of(slave) == log_of(master)
    await slave.close()
    await master.close()


@pytest.mark.parametrize("restarts", [False, True])
async def test_offsets_of_lost_messages_are_not_used_again(tmp_path: Path, restarts: bool) -> None:
    """The last messages of all queues are damaged, and the copy becomes the original."""
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    places = await fill(master)
    damage(master, places[-6] + 8, random.Random(1).randbytes(places[-1] - places[-6] + 60))
    await copy_all(master, slave)
    if restarts:
        await slave.close()
        slave = slave_at(tmp_path / "s")
        slave.confirm(slave.durable_end)
    for queue_id in range(QUEUES):
        assert slave.reader.next_offset(TOPIC, queue_id) == COUNT // QUEUES
    await fill(slave, QUEUES, first=COUNT)
    slave.confirm(slave.durable_end)
    found = read_all(slave)
    for number in range(COUNT, COUNT + QUEUES):
        assert found[number % QUEUES, number // QUEUES] == body_of(number)
    assert sum(body is None for body in found.values()) == 6
    await slave.close()
    await master.close()


async def test_a_restart_before_the_confirmation_keeps_the_offsets(tmp_path: Path) -> None:
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    places = await fill(master)
    damage(master, places[20] + 8, bytes(500))
    while slave.copies.end_offset < master.durable_end:
        chunk = master.copies.examined(slave.copies.end_offset, limit=master.durable_end)
        assert chunk is not None
        await slave.copy(chunk)
    slave.abandon()
    slave = slave_at(tmp_path / "s")
    slave.confirm(master.durable_end)
    found = read_all(slave)
    assert found == read_all(master)
    await slave.close()
    await master.close()


async def test_damage_at_the_original_removes_no_intact_copy(tmp_path: Path) -> None:
    """Logs that are equal behind the damage were equal before it."""
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    places = await fill(master)
    await copy_all(master, slave)
    segments = [each.start for each in master.log.segments]
    for place in (*segments[1:-1], places[30]):
        damage(master, place + 8, bytes(60))
    probes = slave.copies.common_end_search().probes
    assert master.copies.count_common(probes) == len(probes)
    assert master.copies.can_continue(probes[-1], slave.copies.end_offset)
    await fill(master, 9, first=COUNT)
    await copy_all(master, slave)
    found = read_all(slave)
    assert len(found) == COUNT + 9
    assert None not in found.values()
    await slave.close()
    await master.close()


async def test_a_copy_with_damage_joins_again_where_it_ended(tmp_path: Path) -> None:
    """In the damage, and right behind it."""
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    places = await fill(master, 20)
    damage(master, places[-3] + 8, bytes(places[-1] - places[-3] + 40))
    await copy_all(master, slave)
    for _ in range(2):
        probes = slave.copies.common_end_search().probes
        assert master.copies.count_common(probes) == len(probes)
        assert master.copies.can_continue(probes[-1], slave.copies.end_offset)
        await fill(master, 1, first=20)
        await copy_all(master, slave)
    await slave.close()
    await master.close()


@pytest.mark.parametrize("victim", [20, 21, 22])
async def test_a_chunk_is_not_much_larger_than_asked(tmp_path: Path, victim: int) -> None:
    """Also beside large messages, so that it fits into a frame."""
    master = MessageStore(tmp_path / "m", segment_bytes=1 << 20, entries_per_file=8)
    master.start()
    slave = slave_at(tmp_path / "s", segment_bytes=1 << 20)
    places = await fill(master, 22)
    (large,) = (
        await master.put(envelope(), [entry(bytes(300_000))], store_ms=1000)
    ).physical_offsets
    await fill(master, 10, first=22)
    damage(master, (*places, large)[victim] + 8, bytes(30))
    while slave.copies.end_offset < master.durable_end:
        chunk = examined_chunk(
            master.log, slave.copies.end_offset, limit=master.durable_end, max_bytes=1000
        )
        assert chunk is not None
        assert len(chunk.data) <= 1000 or (chunk.offset == large and not chunk.gaps)
        await slave.copy(chunk)
    assert log_of(slave) == log_of(master)
    await slave.close()
    await master.close()


async def test_data_that_was_damaged_on_its_way_is_not_copied(tmp_path: Path) -> None:
    master, slave = master_at(tmp_path / "m"), slave_at(tmp_path / "s")
    await fill(master)
    chunk = master.copies.chunk(0, limit=master.durable_end)
    assert chunk is not None
    broken = bytearray(chunk.data)
    broken[500] ^= 1
    with pytest.raises(StoreError, match="damaged"):
        await slave.copy(chunk._replace(data=bytes(broken)))
    assert slave.copies.end_offset == 0
    examined = master.copies.examined(0, limit=master.durable_end)
    assert examined is not None
    assert examined == chunk._replace(data=examined.data)
    assert examined.gaps == ()
    await slave.close()
    await master.close()
