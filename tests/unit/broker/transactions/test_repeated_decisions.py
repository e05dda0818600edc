"""A producer repeats the end of a transaction, because it was not confirmed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.errors import BrokerError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.transaction_headers import End
from broker_core.store.pending import Kept
from broker_core.store.replicated_store import ReplicatedStore
from tests.support.transaction_site import Site, ended


class Replicas:
    """Replicas that confirm nothing until told so."""

    kept = Kept.WELL

    async def __call__(self, end: int) -> Kept:
        return self.kept


async def opened(folder: Path, replicas: Replicas) -> tuple[ReplicatedStore, Site]:
    store = ReplicatedStore(folder)
    store.start(replicas=replicas)
    return store, Site.on(store, CommittedOffsets())


@pytest.mark.parametrize("kept", [Kept.UNCONFIRMED, Kept.UNSURE, Kept.ALONE])
async def test_it_is_confirmed_no_better_than_the_first_one(tmp_path: Path, kept: Kept) -> None:
    replicas = Replicas()
    store, site = await opened(tmp_path, replicas)
    commit = ended(await site.prepare(b"one"), End.COMMIT)
    store.confirm(site.end)
    replicas.kept = kept
    assert await site.coordinator.end(commit) is kept
    assert await site.coordinator.end(commit) is kept
    replicas.kept = Kept.WELL
    store.confirm(site.end)
    assert await site.coordinator.end(commit) is Kept.WELL
    assert site.visible() == {b"one": 1}
    with pytest.raises(BrokerError, match="ended before by commit"):
        await site.coordinator.end(ended(commit, End.ROLLBACK))
    await store.close()


async def test_it_is_confirmed_after_a_restart(tmp_path: Path) -> None:
    """Its producer lost the answer with the broker: it would take the commit for a roll-back."""
    offsets = CommittedOffsets()
    site = Site.open(tmp_path, offsets)
    halves = [await site.prepare(b"%d" % number) for number in range(3)]
    for half, how in zip(halves, (End.COMMIT, End.ROLLBACK, End.COMMIT), strict=True):
        await site.coordinator.end(ended(half, how))
    site.coordinator.catch_up()
    site.coordinator.note_progress()
    await site.store.close()
    site = Site.open(tmp_path, offsets)
    for half, how in zip(halves, (End.COMMIT, End.ROLLBACK, End.COMMIT), strict=True):
        assert await site.coordinator.end(ended(half, how)) is Kept.WELL
    with pytest.raises(BrokerError, match="ended before by rollback: commit comes too late"):
        await site.coordinator.end(ended(halves[1], End.COMMIT))
    assert site.visible() == {b"0": 1, b"2": 1}
    await site.store.close()


async def test_a_disk_that_fails_meanwhile_is_not_mistaken_for_another_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = Replicas()
    store, site = await opened(tmp_path, replicas)
    commit = ended(await site.prepare(b"one"), End.COMMIT)
    store.confirm(site.end)
    await site.coordinator.end(commit)

    async def failed() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(store, "sync", failed)
        with pytest.raises(BrokerError, match="cannot write its log now") as refused:
            await site.coordinator.end(commit)
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    await store.close()
