"""Masters and slaves in processes, killed with SIGKILL, stopped and torn while messages arrive."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from broker_core.client.results import SendStatus
from broker_core.errors import RemotingError
from broker_core.names import QueueName
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import spawn
from testkit.eventually import eventually, until
from tests.integration.broker.replicas.replica_kills import SENDERS, TOPIC, Processes, processes

pytestmark = pytest.mark.sockets

SEED = int(os.environ.get("ORDERLANE_SEED", "1"))
SYNC = {"replication": "sync", "slave_timeout_s": 1.0}


def senders(running: Processes) -> list[asyncio.Task[None]]:
    return [spawn(running.send_until_it_ends(n), name=f"sender {n}") for n in range(SENDERS)]


async def more(running: Processes, count: int) -> None:
    """Return once *count* more sends were answered OK."""
    goal = running.count + count
    await eventually(lambda: running.count >= goal, within_s=30)


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_with_the_master(tmp_path: Path) -> None:
    """Sync, three of three. Slaves serve all of it while there is no master; the promoted one
    continues, the old one becomes a slave, and its log equals the new master's.
    """
    async with processes(tmp_path, seed=SEED) as running:
        settings = {**SYNC, "in_sync_replicas": 3}
        await running.start(0, "master", **settings)
        await running.start(1, "slave")
        await running.start(2, "slave")
        await running.create_topic()
        sending = senders(running)
        await more(running, 300)
        await running.kill(0)
        await asyncio.gather(*sending)

        for slave in (1, 2):  # one message per sender, confirmed without notice to the slave
            await running.until_served(slave, but=SENDERS)
        await running.kill(1)
        await running.start(1, "master", **settings)
        await running.start(0, "slave")
        for number in (0, 1, 2):
            await running.until_all_served(number)
        sending = senders(running)
        await more(running, 100)
        await running.kill(1)
        await asyncio.gather(*sending)
        await running.start(1, "master", **settings)
        for number in (0, 1, 2):
            await running.until_all_served(number)
        # Sends under way when the master was killed have no answer: they are copied as well.
        await eventually(
            lambda: len({running.log_bytes(number) for number in (0, 1, 2)}) == 1, within_s=30
        )


@pytest.mark.slow
async def test_a_slave_killed_torn_or_stopped_catches_up_and_costs_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    """Sync, two of three: sends continue while one slave is connected."""
    async with processes(tmp_path, seed=SEED) as running:
        await running.start(0, "master", **SYNC)
        await running.start(1, "slave")
        await running.start(2, "slave")
        await running.create_topic()
        sending = senders(running)
        await more(running, 50)
        for round_number in range(3):
            slave = 1 + round_number % 2
            # The other one suffices for sends: this one may not have joined yet.
            await eventually(lambda: running.log_bytes(slave) != b"", within_s=30)  # noqa: B023
            await running.kill(slave)
            tear(running, slave)
            await more(running, 50)
            await running.start(slave, "slave")
            await more(running, 20)
        running.forks[1].signal(signal.SIGSTOP)  # like a network partition
        await more(running, 30)
        running.forks[1].signal(signal.SIGCONT)
        running.forks[2].signal(signal.SIGSTOP)
        running.forks[2].signal(signal.SIGCONT)
        await more(running, 30)
        await running.kill(0)
        await asyncio.gather(*sending)
        await running.start(0, "master", **SYNC)
        for number in (0, 1, 2):
            await running.until_all_served(number)


def tear(running: Processes, number: int) -> None:
    """Remove some bytes from the end of a log, like a power failure; zeros replace them."""
    last = max(
        path
        for path in (running.folder / str(number) / "commitlog").iterdir()
        if path.name.isdigit() and path.read_bytes().strip(b"\0")
    )
    content = last.read_bytes()
    end = len(content.rstrip(b"\0")) - running.chooser.randrange(200)
    last.write_bytes(content[: max(0, end)].ljust(len(content), b"\0"))


@pytest.mark.slow
async def test_async_loses_what_slaves_had_not_copied_yet_and_no_more(tmp_path: Path) -> None:
    async with processes(tmp_path, seed=SEED, brokers=2) as running:
        await running.start(0, "master")
        await running.start(1, "slave")
        await running.create_topic()
        sending = senders(running)
        await more(running, 300)
        early = {queue_id: dict(sent) for queue_id, sent in running.answered.items()}

        async def copied() -> bool:
            served = await running.served(1)
            return all(sent.items() <= served[queue_id].items() for queue_id, sent in early.items())

        await until(copied)
        await running.kill(0)
        await asyncio.gather(*sending)
        assert await copied()
        await running.kill(1)
        await running.start(1, "master")
        await running.start(0, "slave")
        kept = await running.served(1)

        async def same() -> bool:
            try:
                return await running.served(0) == kept
            except RemotingError:  # it is reopening its store
                return False

        await until(same)
        await eventually(lambda: running.log_bytes(0) == running.log_bytes(1))


@pytest.mark.slow
async def test_a_slave_that_hangs_is_counted_out_until_it_asks_again(tmp_path: Path) -> None:
    async with processes(tmp_path, seed=SEED, brokers=2) as running:
        await running.start(0, "master", replication="sync", slave_timeout_s=0.3)
        await running.start(1, "slave")
        await running.create_topic()
        client = await running.client()
        queue = QueueName(TOPIC, "broker-a", 0)

        async def status() -> SendStatus:
            return (await client.send(queue, OutgoingMessage(TOPIC, b"x"))).status

        async def ends_with(wanted: SendStatus) -> bool:
            return await status() is wanted

        seen = SendStatus.OK
        for _ in range(5):  # removed before it is asked, if this process stands still
            await until(lambda: ends_with(SendStatus.OK))
            running.forks[1].signal(signal.SIGSTOP)
            if (seen := await status()) is not SendStatus.SLAVE_NOT_AVAILABLE:
                break
            running.forks[1].signal(signal.SIGCONT)
        assert seen is SendStatus.FLUSH_SLAVE_TIMEOUT
        await until(lambda: ends_with(SendStatus.SLAVE_NOT_AVAILABLE))
        running.forks[1].signal(signal.SIGCONT)
        await until(lambda: ends_with(SendStatus.OK))
        await client.close()
