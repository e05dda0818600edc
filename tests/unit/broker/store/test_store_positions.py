"""Messages stored together, messages found by position, and messages that retention must keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.remoting.message import PHYSICAL_OFFSET_AT, decode_messages
from broker_core.store.message_store import MessageStore
from tests.support.store_messages import TOPIC, entry, envelope, stored

SEGMENT = 4000


def opened(folder: Path) -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT)
    store.start()
    return store


def bodies(store: MessageStore, queue_id: int) -> list[bytes]:
    read = store.reader.read(TOPIC, queue_id, 0, max_messages=100)
    return [message.body for message in decode_messages(read.body)]


async def test_parts_of_several_queues_stand_in_the_log_one_behind_the_other(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    parts = [
        (envelope(0), [entry(b"a"), entry(b"b")]),
        (envelope(1), [entry(b"x")]),
        (envelope(0), [entry(b"c")]),
    ]
    put = await store.put_all(parts, store_ms=1)
    assert [each.first_queue_offset for each in put] == [0, 0, 2]
    places = [place for each in put for place in each.physical_offsets]
    assert places == sorted(places)
    await store.close()
    store = opened(tmp_path)
    assert (bodies(store, 0), bodies(store, 1)) == ([b"a", b"b", b"c"], [b"x"])
    await store.close()


async def test_parts_that_do_not_fit_store_none_of_them(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(ValueError, match="bytes: at most"):
        await store.put_all(
            [(envelope(0), [entry(b"a")]), (envelope(1), [entry(bytes(SEGMENT))])], store_ms=1
        )
    assert (await store.put(envelope(0), [entry(b"b")], store_ms=1)).first_queue_offset == 0
    assert (bodies(store, 0), bodies(store, 1)) == ([b"b"], [])
    await store.close()


async def test_a_message_is_found_by_its_place_and_by_no_other_number(tmp_path: Path) -> None:
    store = opened(tmp_path)
    # A body that looks like a message of a queue, even with its own position.
    forged = stored(b"forged", offset=1)
    body_at = 88
    forged[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = body_at.to_bytes(8, "big")
    put = await store.put(envelope(0), [entry(bytes(forged)), entry(b"b")], store_ms=1)
    found = {
        place: message.body
        for place in range(-2, store.log.end_offset + 2)
        if (message := store.reader.message_at(place)) is not None
    }
    assert found == dict(zip(put.physical_offsets, [bytes(forged), b"b"], strict=True))
    assert store.log.read(body_at, len(forged)) == forged  # it was at the position that it states
    await store.close()


async def test_retention_leaves_what_must_be_kept(tmp_path: Path) -> None:
    store = opened(tmp_path)
    places = [
        (await store.put(envelope(0), [entry(bytes(900))], store_ms=1)).physical_offsets[0]
        for _ in range(20)
    ]
    kept = places[7]
    await store.delete_expired(before_ms=None, keep_bytes=1, keep_from=kept)
    assert store.reader.message_at(kept) is not None
    assert kept - SEGMENT < store.log.first_offset <= kept
    await store.delete_expired(before_ms=None, keep_bytes=1)
    assert store.reader.message_at(kept) is None
    await store.close()
