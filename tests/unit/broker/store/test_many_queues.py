"""A store with many queues serves others while it writes or searches their files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.message_store import QUEUES_AT_ONCE, MessageStore
from tests.support.store_messages import entry, envelope

QUEUES = 5 * QUEUES_AT_ONCE
SEGMENT = 64 * 1024


@contextmanager
def calls_by_pass(
    monkeypatch: pytest.MonkeyPatch, method: str, note: Callable[[Any], None] = bool
) -> Iterator[list[int]]:
    """Yield the number of calls of *method* of queues in each pass of the event loop.

    Calls that return something empty do not count.
    """
    calls, real = list[int](), getattr(ConsumeQueue, method)
    ended = True  # the pass of the last call

    def end() -> None:
        nonlocal ended
        ended = True

    def counted(queue: ConsumeQueue, *args: Any) -> Any:
        nonlocal ended
        result = real(queue, *args)
        if ended:
            calls.append(0)
            asyncio.get_running_loop().call_soon(end)
            ended = False
        calls[-1] += result is None or bool(result)
        note(result)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, method, counted)
        yield calls


async def filled(folder: Path) -> MessageStore:
    store = MessageStore(folder, segment_bytes=SEGMENT, flush="async")
    store.start()
    for _ in range(3):
        for number in range(QUEUES):
            await store.put(envelope(number), [entry(b"x" * 200)], store_ms=1)
    return store


async def test_a_checkpoint_writes_some_queues_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    written: list[set[Path]] = []
    with calls_by_pass(monkeypatch, "take_written", written.append) as passes:
        await store.checkpoint()
    assert len([each for each in written if each]) >= QUEUES
    assert max(passes) <= QUEUES_AT_ONCE
    store.abandon()
    store = MessageStore(tmp_path, segment_bytes=SEGMENT)
    assert store.recovery.replayed == 0
    store.abandon()


async def test_a_deletion_of_segments_searches_some_queues_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    with calls_by_pass(monkeypatch, "delete_before") as passes:
        assert await store.delete_expired(before_ms=None, keep_bytes=1) > 0
    assert sum(passes) == QUEUES + 1  # and that of ended delayed messages
    assert max(passes) <= QUEUES_AT_ONCE
    await store.close()
