"""Delayed messages that ended, before a replica has confirmed the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.names import TIMER_TOPIC, DelayedPlace
from broker_core.store.replicated_store import ReplicatedStore
from tests.support.store_messages import entry, envelope


def opened(folder: Path) -> ReplicatedStore:
    store = ReplicatedStore(folder)
    store.start()
    return store


@pytest.mark.slow
async def test_a_start_does_not_rebuild_all_because_of_it(tmp_path: Path) -> None:
    """Its entry exists before that of any other unconfirmed message."""
    store = opened(tmp_path)
    waits = await store.put(envelope(topic=TIMER_TOPIC), [entry()], store_ms=1)
    store.confirm(waits.log_end)
    delivered = envelope()._replace(prepared_offset=-DelayedPlace(18, 0).number)
    await store.put(delivered, [entry()], store_ms=1)
    await store.close()
    for _ in range(3):
        store = opened(tmp_path)
        assert not store.recovery.rebuilt
        assert store.visible_end == waits.log_end
        await store.put(envelope(), [entry()], store_ms=1)
        await store.checkpoint()
        store.confirm(waits.log_end + 1)
        await store.close()
