"""Sends that wait for replicas."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_core.broker.replicas.replicas import Replicas
from broker_core.broker.replicas.replication import Replication
from broker_core.store import replicated_store
from broker_core.store.message_store import MessageStore
from broker_core.store.pending import Kept
from broker_core.store.replicated_store import ReplicatedStore
from broker_core.tasks import spawn
from tests.support.store_messages import entry, envelope

SENDS = 1000


def replication(store: SimpleNamespace | MessageStore) -> Replication:
    """Return a master whose only slave, which is needed, has nothing yet."""
    replicas = Replicas(needed=2)
    replicas.acked(1, 0)
    return Replication(
        cast(Any, store),
        identity=cast(Any, None),
        tables=cast(Any, None),
        broker_name="broker-a",
        replicas=replicas,
        timeout_s=3.0,
    )


def futures() -> int:
    gc.collect()
    return sum(type(each) is asyncio.Future for each in gc.get_objects())  # no tasks


async def test_a_wait_that_has_ended_uses_no_memory_while_the_slave_is_behind() -> None:
    master = replication(SimpleNamespace(durable_end=SENDS))
    before = futures()
    kept = await asyncio.gather(*(master.kept(end) for end in range(1, SENDS + 1)))
    assert set(kept) == {Kept.UNSURE}
    assert futures() - before < SENDS / 10


async def test_waits_beside_those_that_have_ended_are_confirmed() -> None:
    master = replication(SimpleNamespace(durable_end=SENDS))
    early = [spawn(master.kept(end), name="send") for end in range(1, 100)]
    await asyncio.sleep(2)
    late = [spawn(master.kept(end), name="send") for end in (200, 150)]
    assert set(await asyncio.gather(*early)) == {Kept.UNSURE}
    master.replicas.acked(1, 150)
    master.log_advanced()
    assert await asyncio.gather(*late) == [Kept.UNSURE, Kept.WELL]


async def test_a_wait_that_is_closed_ends_without_an_error_of_its_own() -> None:
    """The garbage collector closes it when its event loop has ended."""
    master = replication(SimpleNamespace(durable_end=1))
    wait = master.kept(1)
    wait.send(None)
    wait.close()
    assert wait.cr_frame is None


async def test_a_backlog_that_is_confirmed_at_once_becomes_visible_between_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send is answered when it is visible. What the broker closes in the middle stays so."""
    monkeypatch.setattr(replicated_store, "CONFIRM_NS", 0)
    monkeypatch.setattr(replicated_store, "CONFIRMED_AT_ONCE_BYTES", 1000)
    store = ReplicatedStore(tmp_path)
    store.start()
    for _ in range(30):
        await store.put(envelope(), [entry(b"x" * 300)], store_ms=1)
    end = store.durable_end
    master = replication(store)
    sent = spawn(master.kept(end), name="send")
    await asyncio.sleep(0)
    master.replicas.acked(1, end)
    seen = []
    master.log_advanced()
    while not sent.done():
        seen.append(store.visible_end)
        await asyncio.sleep(0)
    assert len(set(seen)) > 5
    assert (await sent, store.visible_end, master.shown) == (Kept.WELL, end, end)

    for _ in range(30):
        stored = await store.put(envelope(), [entry(b"x" * 300)], store_ms=1)
    master.replicas.acked(1, stored.log_end)
    master.log_advanced()
    visible = store.visible_end
    master.close()
    await asyncio.sleep(1)
    assert end < visible == store.visible_end < stored.log_end
    assert store.confirm_some(2**62) == store.confirmed_end < stored.log_end
    while store.confirm_some(2**62) < 2**62:
        pass
    assert store.visible_end == stored.log_end
    await store.close()
