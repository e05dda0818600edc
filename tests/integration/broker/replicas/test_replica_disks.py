"""A slave whose disk is full: for the log of its master, or for the tables."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.client.results import SendStatus
from broker_core.remoting.message import OutgoingMessage
from broker_core.store.tables import JsonTable
from tests.support.replica_group import TOPIC, replica_group

TOO_FEW = SendStatus.SLAVE_NOT_AVAILABLE


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Let neither the log nor a table in *folder* grow."""
    writes, saves = os.pwrite, JsonTable.save_bytes

    def write(descriptor: int, data: bytes, position: int) -> int:
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(str(folder)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return writes(descriptor, data, position)

    def save(table: JsonTable, content: bytes) -> None:
        if table.path.is_relative_to(folder):
            raise OSError(errno.ENOSPC, "No space left on device")
        saves(table, content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "pwrite", write)
        patched.setattr(JsonTable, "save_bytes", save)
        yield


@pytest.mark.parametrize("folder", ["commitlog", "config"])
async def test_sends_do_not_wait_for_a_slave_without_room_which_goes_on_when_there_is(
    tmp_path: Path, folder: str
) -> None:
    """It logs its problem once, and counts as a replica once more at most."""
    async with replica_group(tmp_path, replication="sync", slave_timeout_s=1) as group:
        await group.start(0)
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        await client.send(queue, OutgoingMessage(TOPIC, b"0"))
        await group.until_served(1, [b"0"])
        sent = [b"0"]
        with full(group.folder(1) / folder), capture_logs() as logged:
            await client.create_topic("another", queues=1)
            statuses = []
            for n in range(1, 30):
                sent.append(b"%d" % n)
                receipt = await client.send(queue, OutgoingMessage(TOPIC, sent[-1]))
                statuses.append(receipt.status)
            assert statuses.count(TOO_FEW) > 20
            assert SendStatus.OK not in statuses
            assert await group.bodies(0) == [b"0"]
        said = [line for line in logged if line["event"] == "not following the master"]
        assert [line["reason"] for line in said] == ["[Errno 28] No space left on device"]
        assert not [line for line in logged if line["event"] == "following the master"]
        for number in (0, 1):
            await group.until_served(number, sent)
