"""Sends that wait for replicas."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

from broker_core.broker.replicas.replicas import Replicas
from broker_core.broker.replicas.replication import Replication
from broker_core.store.pending import Kept
from broker_core.tasks import spawn

SENDS = 1000


def replication(store: SimpleNamespace) -> Replication:
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
