"""A slave that must reopen its store because its log has to be truncated, and cannot yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker_core.broker import housekeeping, server
from broker_core.errors import StoreError, TlsError
from broker_core.store.message_store import MessageStore
from broker_core.tasks import spawn
from testkit.eventually import eventually
from tests.support.replica_group import replica_group


@pytest.mark.parametrize("refusal", [StoreError("no room"), TlsError("half a certificate")])
async def test_it_tries_again_and_can_be_stopped_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    monkeypatch.setattr(housekeeping, "AGAIN_S", 0.05)
    async with replica_group(tmp_path) as group:
        await group.start(0)
        slave = await group.start(1)
        works, tries, refuses = server.open_store, 0, True

        def open_store(settings: server.BrokerSettings) -> MessageStore:
            nonlocal tries
            tries += 1
            if refuses:
                raise refusal
            return works(settings)

        monkeypatch.setattr(server, "open_store", open_store)
        opening = spawn(slave.reopen(), name="reopen")
        await eventually(lambda: tries > 1)
        refuses = False
        await asyncio.wait_for(opening, 20)
        assert await group.bodies(1) == []

        refuses, tries = True, 0
        opening = spawn(slave.reopen(), name="reopen")
        await eventually(lambda: tries > 1)
        await asyncio.wait_for(group.stop(1), 20)
        await asyncio.wait_for(opening, 20)
        refuses = False
        await slave.reopen()  # after waiting for its turn
        assert not slave.is_open
