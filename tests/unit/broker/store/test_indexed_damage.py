"""The key index is complete for intact messages beside damage, and heals damage of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.store.message_store import MessageStore
from tests.support.flipped_files import flip
from tests.support.store_messages import TOPIC, entry, envelope

SEGMENT = 4000
COUNT = 60


def opened(folder: Path) -> MessageStore:
    return MessageStore(folder, segment_bytes=SEGMENT, flush="async")


async def written(folder: Path) -> list[int]:
    store = opened(folder)
    store.start()
    places: list[int] = []
    for number in range(COUNT):
        one = entry(b"%04d" % number * 40, key=f"key-{number}")
        places += (await store.put(envelope(), [one], store_ms=1)).physical_offsets
    await store.close()
    return places


async def found(store: MessageStore) -> set[int]:
    indexer = store.key_indexer()
    store.start()
    indexer.start()
    numbers: set[int] = set()
    for number in range(COUNT):
        async for message in indexer.find(
            TOPIC, f"key-{number}", begin_ms=0, end_ms=9, timeout_s=30
        ):
            assert message.body == b"%04d" % number * 40
            numbers.add(number)
    await indexer.close()
    await store.close()
    return numbers


@pytest.mark.parametrize("byte", [2, 3, 5, 87, 90])
async def test_keys_behind_a_damaged_message_are_indexed(tmp_path: Path, byte: int) -> None:
    places = await written(tmp_path)
    path = tmp_path / "commitlog" / f"{0:020d}"
    flip(places[5] + byte, 0x01)(path)
    with capture_logs():
        assert await found(opened(tmp_path)) == set(range(COUNT)) - {5}


@pytest.mark.parametrize("position", [3, 9, 30, 47, 60])
async def test_a_damaged_file_of_the_index_is_made_again(tmp_path: Path, position: int) -> None:
    await written(tmp_path)
    assert await found(opened(tmp_path)) == set(range(COUNT))
    flip(position, 0x10)(tmp_path / "index" / f"{0:020d}")
    with capture_logs():
        assert await found(opened(tmp_path)) == set(range(COUNT))
