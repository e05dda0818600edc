"""A master's store and a slave's, and copies from one to the other."""

from __future__ import annotations

from pathlib import Path

from broker_core.remoting.message import decode_messages
from broker_core.store.message_store import MessageStore
from broker_core.store.replicated_store import ReplicatedStore
from tests.support.store_messages import TOPIC

SEGMENT = 4000
QUEUES = 3


def master_at(folder: Path) -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT, entries_per_file=8)
    store.start()
    return store


def slave_at(folder: Path, *, segment_bytes: int = SEGMENT) -> ReplicatedStore:
    store = ReplicatedStore(folder, segment_bytes=segment_bytes, entries_per_file=8)
    store.start()
    return store


async def catch_up(master: MessageStore, slave: ReplicatedStore, *, chunks: int = 10_000) -> None:
    for _ in range(chunks):
        chunk = master.copies.chunk(slave.copies.end_offset, limit=master.durable_end)
        if chunk is None:
            return
        await slave.copy(chunk)


def bodies(store: MessageStore, queue_id: int) -> list[bytes]:
    offset = store.reader.min_offset(TOPIC, queue_id)
    found = store.reader.read(TOPIC, queue_id, offset, max_messages=10_000)
    return [message.body for message in decode_messages(found.body, check_crc=True)]


def log_of(store: MessageStore) -> dict[str, bytes]:
    folder = store.table("x").path.parents[1] / "commitlog"
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.isdigit()}


def assert_equal(master: MessageStore, slave: MessageStore) -> None:
    assert log_of(slave) == log_of(master)
    for queue_id in range(QUEUES):
        assert bodies(slave, queue_id) == bodies(master, queue_id)


def damage(folder: Path, place: int) -> None:
    """Change one byte of the log at *place*, also in the cache of the system."""
    segments = [path for path in (folder / "commitlog").iterdir() if path.name.isdigit()]
    path = max(each for each in segments if int(each.name) <= place)
    with path.open("r+b") as file:
        file.seek(place - int(path.name))
        (byte,) = file.read(1)
        file.seek(place - int(path.name))
        file.write(bytes([byte ^ 1]))
