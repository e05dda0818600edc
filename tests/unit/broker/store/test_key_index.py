"""The key index and its indexer: found after a restart, kept in step, rebuilt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker_core.names import Topic
from broker_core.remoting.message import encode_properties
from broker_core.remoting.record_encoding import BatchEntry
from broker_core.store import indexer, key_index
from broker_core.store.index_keys import has_key, hashes_of, key_hash, keys_of
from broker_core.store.index_pace import MAX_BEHIND_BYTES, MAX_BEHIND_NS, SLICE_NS, IndexPace
from broker_core.store.indexer import IndexBehind, KeyIndexer
from broker_core.store.message_store import MessageStore
from broker_core.tasks import spawn
from testkit.eventually import eventually
from tests.support.store_messages import TOPIC, envelope

SEGMENT = 128 * 1024
ALWAYS = {"begin_ms": 0, "end_ms": 2**62}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[MessageStore, KeyIndexer]]:
    """Yield a store with its index; leave it as after a crash."""
    store = MessageStore(folder, segment_bytes=SEGMENT, flush="async")
    index = store.key_indexer()
    store.start()
    index.start()
    try:
        yield store, index
    finally:
        await index.close()
        await store.sync()
        store.abandon()


def entry(*keys: str, unique: str = "", size: int = 100) -> BatchEntry:
    raw = encode_properties({"KEYS": " ".join(keys), "UNIQ_KEY": unique, "WAIT": "true"})
    return BatchEntry(0, b"x" * size, raw)


async def found(index: KeyIndexer, key: str, topic: str = TOPIC, **when: int) -> list[int]:
    search = index.find(Topic(topic), key, **{**ALWAYS, **when}, timeout_s=20)  # type: ignore[arg-type]
    return [message.queue_offset async for message in search]


async def put(
    store: MessageStore, *entries: BatchEntry, topic: str = TOPIC, at_ms: int = 0
) -> None:
    await store.put(envelope(topic=topic), entries, store_ms=at_ms)


# ---- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "keys"),
    [
        (b"", []),
        (b"KEYS\x01a\x02", [b"a"]),
        (b"KEYS\x01a b  c\x02TAGS\x01t\x02", [b"a", b"b", b"c"]),
        (b"TAGS\x01KEYS\x02UNIQ_KEY\x01U1", [b"U1"]),
        (b"UNIQ_KEY\x01U1\x02KEYS\x01U1 x\x02", [b"U1", b"U1", b"x"]),
        (b"MYKEYS\x01no\x02XUNIQ_KEY\x01no\x02", []),
        (b"KEYS\x01   \x02", []),
    ],
)
def test_keys_are_the_unique_one_and_the_words_of_the_others(raw: bytes, keys: list[bytes]) -> None:
    assert keys_of(raw) == keys
    assert sorted(hashes_of(b"t", raw)) == sorted({key_hash(b"t", key) for key in keys})
    assert [has_key(raw, key) for key in (b"U1", b"no")] == [b"U1" in keys, False]


# ---- finding ------------------------------------------------------------------------------------


async def test_messages_are_found_by_each_of_their_keys_the_newest_first(tmp_path: Path) -> None:
    async with opened(tmp_path / "d") as (store, index):
        await put(store, entry("a", "b", unique="U1"), entry("b", unique="U2"), entry("c"))
        await put(store, entry("a"), topic="other")
        assert await found(index, "b") == [1, 0]
        assert await found(index, "a") == [0]
        assert await found(index, "a", "other") == [0]
        assert await found(index, "U2") == [1]
        assert await found(index, "a b") == []
        await put(store, entry("b"))
        assert await found(index, "b") == [3, 1, 0], "what was stored just now is found as well"


async def test_only_what_was_stored_in_time_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path / "d") as (store, index):
        for at_ms in (10, 20, 30, 40):
            await put(store, entry("a"), at_ms=at_ms)
        assert await found(index, "a", begin_ms=20, end_ms=30) == [2, 1]
        assert await found(index, "a", begin_ms=41) == []


async def test_keys_of_one_hash_are_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "hashes_of", lambda *_: [7])
    monkeypatch.setattr(indexer, "key_hash", lambda *_: 7)
    async with opened(tmp_path / "d") as (store, index):
        await put(store, *(entry(f"k{n % 3}") for n in range(9)))
        await put(store, entry("k1"), topic="other")
        assert await found(index, "k1") == [7, 4, 1]
        assert await found(index, "k3") == []


# ---- files --------------------------------------------------------------------------------------


async def fill(store: MessageStore, count: int, *, first: int = 0) -> None:
    for n in range(first, first + count, 100):
        await put(store, *(entry(f"k{m}", unique=f"U{m}") for m in range(n, n + 100)))


async def all_found(index: KeyIndexer, count: int, *, first: int = 0) -> None:
    for n in (*range(first, first + count, 97), first + count - 1):
        assert await found(index, f"k{n}") == [n]
        assert await found(index, f"U{n}") == [n]


@pytest.fixture
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "RUN_ENTRIES", 300)
    monkeypatch.setattr(key_index, "WINDOW", 4)


@pytest.mark.usefixtures("_small_runs")
async def test_after_a_crash_all_is_found_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "d") as (store, index):
        await fill(store, 3000)
        await all_found(index, 3000)
        assert len(list((tmp_path / "d/index").iterdir())) == len(store.log.segments) > 3
    async with opened(tmp_path / "d") as (store, index):
        assert store.log.end_offset - index.position < SEGMENT, "most was found on disk"
        await all_found(index, 3000)
        await fill(store, 200, first=3000)
        await all_found(index, 3200)


@pytest.mark.usefixtures("_small_runs")
@pytest.mark.parametrize("harm", ["missing", "torn", "zeros", "bit", "hole", "rubbish"])
async def test_what_is_missing_or_damaged_is_made_again(tmp_path: Path, harm: str) -> None:
    async with opened(tmp_path / "d") as (store, index):
        await fill(store, 2500)
        await all_found(index, 2500)
    files = sorted((tmp_path / "d/index").iterdir())
    size = files[-1].stat().st_size
    match harm:
        case "missing":
            for path in files:
                path.unlink()
        case "torn":
            os.truncate(files[-1], size - 5)
        case "zeros":
            os.truncate(files[-1], size // 2)
            os.truncate(files[-1], size)
        case "bit":
            data = bytearray(files[-1].read_bytes())
            data[100] ^= 1
            files[-1].write_bytes(data)
        case "hole":
            files[1].unlink()
        case "rubbish":
            files[-1].with_name(f"{10**12:020d}").write_bytes(b"other")
    async with opened(tmp_path / "d") as (_, index):
        await all_found(index, 2500)
        assert not files[-1].with_name(f"{10**12:020d}").exists()


async def test_a_search_during_which_another_makes_the_index_again_finds_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one finds a part damaged, and deletes what this one is about to read."""
    monkeypatch.setattr(key_index, "RUN_ENTRIES", 50)
    async with opened(tmp_path) as (store, index):
        for number in range(300):
            await put(store, entry("wanted", f"k{number}"))
        search = index.find(TOPIC, "wanted", **ALWAYS, timeout_s=20)
        offsets = [(await anext(search)).queue_offset]
        (file,) = (tmp_path / "index").iterdir()
        data = bytearray(file.read_bytes())
        data[100] ^= 1
        file.write_bytes(data)
        other = spawn(found(index, "wanted"), name="search")
        while file.exists():  # noqa: ASYNC110  # the other one deletes it
            await asyncio.sleep(0)
        offsets += [message.queue_offset async for message in search]
        assert offsets == await other == list(range(299, -1, -1))


@pytest.mark.usefixtures("_small_runs")
async def test_what_the_log_lost_is_not_found_and_what_came_instead_is(tmp_path: Path) -> None:
    """A power failure removed the end of the log, which was indexed."""
    async with opened(tmp_path / "d") as (store, index):
        await fill(store, 1000)
        await all_found(index, 1000)
        last = store.log.segments[-1]
        cut = last.start + (store.log.end_offset - last.start) // 2
    os.truncate(last.path, cut - last.start)
    async with opened(tmp_path / "d") as (store, index):
        kept = store.reader.end_offset(TOPIC, 0)
        assert 500 < kept < 1000
        await put(store, *(entry(f"new{n}") for n in range(1000 - kept)))
        assert await found(index, "k999") == []
        assert await found(index, f"k{kept - 1}") == [kept - 1]
        assert await found(index, "new0") == [kept]
        assert await found(index, f"new{999 - kept}") == [999]


@pytest.mark.usefixtures("_small_runs")
async def test_files_go_with_the_segments_of_the_log(tmp_path: Path) -> None:
    async with opened(tmp_path / "d") as (store, index):
        await fill(store, 3000)
        await all_found(index, 3000)
        await store.delete_expired(before_ms=None, keep_bytes=2 * SEGMENT)
        first = store.reader.min_offset(TOPIC, 0)
        assert await found(index, "k0") == []
        starts = {segment.start for segment in store.log.segments}
        await eventually(lambda: {int(p.name) for p in (tmp_path / "d/index").iterdir()} <= starts)
        await all_found(index, 3000 - first, first=first)
    async with opened(tmp_path / "d") as (_, index):
        await all_found(index, 3000 - first, first=first)


async def test_segments_that_go_before_they_were_read_are_no_trouble(tmp_path: Path) -> None:
    store = MessageStore(tmp_path / "d", segment_bytes=SEGMENT, flush="async")
    index = store.key_indexer()
    store.start()
    await fill(store, 3000)
    await store.delete_expired(before_ms=None, keep_bytes=SEGMENT)
    index.start()
    first = store.reader.min_offset(TOPIC, 0)
    assert first > 1000
    await all_found(index, 3000 - first, first=first)
    await index.close()
    store.abandon()


async def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "RUN_ENTRIES", 300)
    monkeypatch.setattr(indexer, "RETRY_S", 0.01)
    full = True
    real = key_index.write_at

    def write(descriptor: int, data: bytes, position: int) -> None:
        if full:
            real(descriptor, data[:50], position)
            raise OSError(28, "No space left on device")
        real(descriptor, data, position)

    monkeypatch.setattr(key_index, "write_at", write)
    async with opened(tmp_path / "d") as (store, index):
        await fill(store, 1000)
        search = index.find(TOPIC, "k1", **ALWAYS, timeout_s=0.1)
        with pytest.raises(IndexBehind, match="is being built: it is at byte"):
            [message async for message in search]
        full = False
        await all_found(index, 1000)
    async with opened(tmp_path / "d") as (_, index):
        await all_found(index, 1000)


async def test_a_message_larger_than_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "CHUNK_BYTES", 1000)
    async with opened(tmp_path / "d") as (store, index):
        await put(store, entry("a"), entry("b", size=50_000), entry("c"))
        await put(store, entry("d", size=100_000))
        for n, key in enumerate("abcd"):
            assert await found(index, key) == [n]


async def test_it_ends_while_a_query_waits(tmp_path: Path) -> None:
    async with opened(tmp_path / "d") as (store, index):
        await fill(store, 100)
        await index.close()
        with pytest.raises(IndexBehind):
            async with asyncio.timeout(5):
                [m async for m in index.find(TOPIC, "k1", **ALWAYS, timeout_s=0.05)]


# ---- pace ---------------------------------------------------------------------------------------


def share(pace: IndexPace, times_ns: range, *, reads: bool, behind: int, asked: bool) -> float:
    """Return the part of the time that the index takes at the end of *times_ns*."""
    pause_ns = 0
    for now_ns in times_ns:
        served = (now_ns if reads else 0, 0)
        pause_ns = pace.pause_ns(now_ns, served=served, behind_bytes=behind, asked=asked)
    return SLICE_NS / (SLICE_NS + pause_ns)


@pytest.mark.parametrize(
    ("reads", "behind", "asked", "part"),
    [
        (True, 1, False, 1 / 20),
        (True, MAX_BEHIND_BYTES, False, 1 / 20),
        (True, MAX_BEHIND_BYTES + 1, False, 1 / 2),
        (True, 1, True, 1 / 2),
        (False, 1, False, 1 / 2),
    ],
)
def test_the_index_gives_way_to_reads_unless_asked_or_late(
    *, reads: bool, behind: int, asked: bool, part: float
) -> None:
    looks = range(0, 1_000_000_000, 40_000_000)
    assert share(IndexPace(), looks, reads=reads, behind=behind, asked=asked) == part


def test_an_index_that_was_behind_for_long_no_longer_gives_way_until_it_caught_up() -> None:
    pace, step_ns = IndexPace(), 40_000_000
    early, late = range(0, MAX_BEHIND_NS, step_ns), range(MAX_BEHIND_NS, 2 * MAX_BEHIND_NS, step_ns)
    assert share(pace, early, reads=True, behind=1, asked=False) == 1 / 20
    assert share(pace, late, reads=True, behind=1, asked=False) == 1 / 2
    share(pace, late[-1:], reads=True, behind=0, asked=False)
    again = range(late.stop, late.stop + MAX_BEHIND_NS, step_ns)
    assert share(pace, again, reads=True, behind=1, asked=False) == 1 / 20


async def test_a_backlog_is_hardly_indexed_while_it_is_drained(tmp_path: Path) -> None:
    """Each slice ends with a file of the log, since no time passes in it."""
    store = MessageStore(tmp_path / "d", segment_bytes=SEGMENT, flush="async")
    index = store.key_indexer()
    store.start()
    for n in range(120):
        await put(store, entry(f"k{n}", size=60_000))
    files = len(store.log.segments)
    index.start()
    for offset in range(100):
        assert store.reader.read(TOPIC, 0, offset, max_messages=1).messages == 1
        await asyncio.sleep(0.01)
    assert 20 <= index.position // SEGMENT <= 35 < files, "26 slices in a second"
    async with asyncio.timeout(0.2):  # a query gets half of the time
        assert await found(index, "k119") == [119]
    await index.close()
    store.abandon()
