"""A broker whose disk is really full: on a tiny file system, and under a limit of file sizes."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import BrokerError, StoreError
from broker_core.names import QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.message import OutgoingMessage
from broker_core.store import tables
from broker_core.store.message_store import MessageStore
from testkit.broker_process import run_broker
from tests.support.broker_kills import GROUP, TOPIC, check_folder, check_queue
from tests.support.forked_broker import forked_brokers

QUEUE = QueueName(TOPIC, "broker-a", 0)
SIZES = {"segment_bytes": 128 * 1024, "max_message_bytes": 50_000}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 1 MiB. Where mounting is not permitted, the test of the limit
    suffices.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]
    if subprocess.run(mount, check=False, capture_output=True, timeout=30).returncode:
        pytest.skip("only root may mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True, timeout=30)


def fill(path: Path) -> None:
    """Leave no byte free on the file system of *path*."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    for size in (4096, 1):
        try:
            while True:
                os.write(descriptor, bytes(size))
        except OSError:
            pass
    os.close(descriptor)


class Producer:
    """Sends to one queue and records the answers."""

    def __init__(self, client: BrokerClient) -> None:
        self.client = client
        self.answered: dict[int, bytes] = {}
        self._number = count()

    async def send(self) -> None:
        body = b"%d " % next(self._number) + b"x" * 5000
        receipt = await self.client.send(QUEUE, OutgoingMessage(TOPIC, body))
        assert receipt.offset == len(self.answered)
        self.answered[receipt.offset] = body

    async def send_until_refused(self) -> BrokerError:
        try:
            for _ in range(1000):
                await self.send()
        except BrokerError as refused:
            return refused
        raise AssertionError("the disk does not get full")

    async def check(self) -> None:
        """Check that everything answered can be pulled, and nothing else."""
        await check_queue(self.client, QUEUE, self.answered, tail=10**6)
        assert await self.client.max_offset(QUEUE) == len(self.answered)


def folder_holds(folder: Path, producer: Producer) -> None:
    answered: dict[QueueName, dict[int, bytes]] = defaultdict(dict, {QUEUE: producer.answered})
    check_folder(folder, answered, retention=False)


@pytest.mark.sockets
async def test_a_full_disk_refuses_sends_until_there_is_room_again(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    async with run_broker(small_disk, **SIZES) as cluster:
        await cluster.create_topic(TOPIC, queues=1)
        producer = Producer(await cluster.client())
        refused = await producer.send_until_refused()
        assert (refused.code, refused.remark) == (
            14, "the broker cannot write its log now: No space left on device",
        )  # fmt: skip
        assert refused.retriable
        fill(small_disk / "rest")
        for _ in range(3):
            await producer.send_until_refused()
        await producer.check()

        with pytest.raises(BrokerError, match="topic table cannot be saved: No space"):
            await producer.client.create_topic(Topic("more"), queues=1)
        assert (await producer.client.lock(GROUP, [QUEUE])).unanswered == {QUEUE}
        await producer.client.commit_offset(GROUP, QUEUE, 7)
        with pytest.raises(OSError, match="No space"):
            await cluster.broker.components.save_tables()
        for crash in (False, True):  # a full disk does not prevent a start
            with capture_logs():
                await cluster.stop_broker(crash=crash)
            await cluster.start_broker()
            await producer.check()
            await producer.send_until_refused()

        ballast.unlink()
        await producer.send()
        await producer.client.create_topic(Topic("more"), queues=1)
        assert (await producer.client.lock(GROUP, [QUEUE])).granted == {QUEUE}
        await producer.client.commit_offset(GROUP, QUEUE, 8)
        await cluster.broker.components.save_tables()
        await cluster.restart_broker(crash=True)
        await producer.check()
        assert await producer.client.committed_offset(GROUP, QUEUE) == 8
    folder_holds(small_disk / "data", producer)


async def test_a_first_start_without_any_room_says_so_and_the_next_one_works(
    small_disk: Path,
) -> None:
    fill(small_disk / "rest")
    folder = small_disk / "data"
    with pytest.raises(StoreError, match=f"^data folder {folder} cannot be used: No space left"):
        MessageStore(folder)
    (small_disk / "rest").unlink()
    MessageStore(folder).abandon()


async def test_retention_makes_room_on_a_disk_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No table can be saved, that of the retention's clock included."""

    def refuse(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with run_broker(tmp_path, retention_bytes=1, **SIZES) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        for _ in range(60):
            await client.send(queue, OutgoingMessage(TOPIC, b"x" * 5000))
        assert await client.min_offset(queue) == 0
        with monkeypatch.context() as full:
            full.setattr(tables, "create", refuse)
            await cluster.broker.components.retention.run()
            assert await client.min_offset(queue) > 0


@pytest.mark.sockets
async def test_a_write_that_finds_no_room_is_taken_back(tmp_path: Path) -> None:
    """No file of the broker may exceed a limit that falls and rises while it serves."""
    nameserver = NameServer("127.0.0.1", 0)
    await nameserver.start()
    settings = {
        "data": tmp_path / "data", "listen": "127.0.0.1:0", "nameserver": [nameserver.address],
        **SIZES,
    }  # fmt: skip
    async with forked_brokers() as broker:
        await broker.start(**settings)
        await broker.ready()
        client = BrokerClient(
            nameservers=[nameserver.address], client_id="producer", request_timeout_s=20
        )
        await client.start()
        await client.create_topic(TOPIC, queues=1)
        producer = Producer(client)
        await producer.send()
        for limit in (20_001, 80_003, 0):
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            refused = await producer.send_until_refused()
            assert (refused.code, refused.remark) == (
                14, "the broker cannot write its log now: File too large",
            )  # fmt: skip
            await producer.check()
            resource.prlimit(
                broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            await producer.send()
            await producer.check()
        await broker.kill()
        await client.close()
    await nameserver.close()
    folder_holds(tmp_path / "data", producer)
