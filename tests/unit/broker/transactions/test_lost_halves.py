"""Undecided transactions that cannot be checked do not stop others, nor the retention."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.remoting.message import StoredMessage
from broker_core.store.message_store import MessageStore
from tests.support.transaction_site import SEGMENT, Site
from tests.unit.broker.store.replicated_stores import damage

LATER_MS = 1_000_000


async def asked_by(site: Site, now_ms: int) -> list[bytes]:
    """Check once; return the bodies of the half messages that a producer was asked about."""
    asked: list[StoredMessage] = []

    def ask(group: str, half: StoredMessage) -> bool:
        asked.append(half)
        return True

    await site.coordinator.check(now_ms, ask)
    return [each.body for each in asked]


async def test_a_damaged_half_message_does_not_keep_the_log(tmp_path: Path) -> None:
    """The log would grow until its disk is full, or until a restart."""
    site = Site.open(tmp_path, CommittedOffsets())
    lost = await site.prepare(b"lost")
    await site.prepare(b"well")
    assert site.coordinator.oldest_place() == lost.commit_log_offset
    await site.store.sync()
    damage(tmp_path, lost.commit_log_offset + 100)
    with capture_logs() as logs:
        assert await asked_by(site, LATER_MS) == [b"well"]
    assert "damaged on disk" in str(logs[-1]["event"])
    assert len(site.coordinator) == 1
    oldest = site.coordinator.oldest_place()
    assert oldest is not None
    assert oldest > lost.commit_log_offset
    await site.store.close()


async def test_one_that_has_become_too_large_does_not_stop_the_checks_of_others(
    tmp_path: Path,
) -> None:
    site = Site.open(tmp_path, CommittedOffsets())
    await site.prepare(b"x" * (SEGMENT // 3))
    await site.prepare(b"well")
    await site.store.close()
    store = MessageStore(tmp_path, segment_bytes=SEGMENT // 2, flush="async")
    store.start()
    site = Site.on(store, CommittedOffsets())
    with capture_logs() as logs:
        assert await asked_by(site, LATER_MS) == [b"well"]
    assert "could not be checked" in str(logs[-1]["event"])
    assert "at most" in logs[-1]["reason"]
    assert len(site.coordinator) == 2
    await store.close()
