"""A wall clock that jumps deletes nothing, and messages that a group has not read go announced."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from broker_core.client.broker_client import BrokerClient
from broker_core.clock import use_clocks, wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.retention import retention_problems
from testkit.broker_process import Cluster, run_broker
from testkit.simulation.loop import SimulatedLoop
from testkit.simulation.machine import WALL_START_NS

TOPIC, GROUP = Topic("orders"), Group("billing")
SMALL = {"segment_bytes": 200_000, "max_message_bytes": 100_000}
HOUR_S = 3600


@dataclass
class WallClock:
    """The machine's clocks. The wall clock is *shift_s* ahead of the time that passed."""

    loop: SimulatedLoop
    shift_s: float = 0.0
    passed_s: float = 0.0

    async def let_pass(self, cluster: Cluster, hours: int) -> None:
        """Let time pass, since the broker's last look at its files."""
        await cluster.broker.components.retention.look()
        self.passed_s += hours * HOUR_S

    def passed_ns(self) -> int:
        return self.loop.now_ns + int(self.passed_s * 1e9)

    def ns(self) -> int:
        return WALL_START_NS + self.passed_ns() + int(self.shift_s * 1e9)


@pytest.fixture
async def wall() -> AsyncIterator[WallClock]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    shifted = WallClock(loop)
    with use_clocks(shifted.passed_ns, shifted.ns):
        yield shifted


async def filled(cluster: Cluster, *, messages: int = 6) -> tuple[BrokerClient, QueueName]:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    for _ in range(messages):
        await client.send(queue, OutgoingMessage(TOPIC, b"x" * 90_000))
    written_now(cluster)
    await client.commit_offset(GROUP, queue, 1)
    return client, queue


def written_now(cluster: Cluster) -> None:
    """Date the files of the log by the simulated clock."""
    now_s = wall_ms() / 1000
    for segment in cluster.broker.components.store.log.segments:
        os.utime(segment.path, (now_s, now_s))


async def kept_from(cluster: Cluster, client: BrokerClient, queue: QueueName) -> int:
    """Run the retention; return the first offset that it keeps."""
    await cluster.broker.components.retention.run()
    return await client.min_offset(queue)


@pytest.mark.parametrize("restart", [False, True])
async def test_after_a_jump_ahead_everything_is_kept_until_it_is_confirmed(
    tmp_path: Path, wall: WallClock, restart: bool
) -> None:
    async with run_broker(tmp_path, **SMALL) as cluster:
        client, queue = await filled(cluster)
        await cluster.broker.components.retention.run()
        if restart:
            await cluster.stop_broker(crash=True)
        wall.shift_s = 80 * HOUR_S
        if restart:
            await cluster.start_broker()
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                assert await kept_from(cluster, client, queue) == 0
        (warning,) = [each for each in logs if "the wall clock is ahead" in each["event"]]
        assert warning["log_level"] == "warning"
        (problem,) = await retention_problems(client, ["broker-a"])
        assert problem.startswith("the clock of broker-a jumped 28")
        await client.confirm_clock("broker-a", by="ada", reason="the clock was behind")
        assert await kept_from(cluster, client, queue) > 0


async def test_a_jump_that_is_reverted_deletes_nothing(tmp_path: Path, wall: WallClock) -> None:
    async with run_broker(tmp_path, **SMALL) as cluster:
        client, queue = await filled(cluster)
        for shift_s in (80 * HOUR_S, -80 * HOUR_S, 0):
            wall.shift_s = shift_s
            assert await kept_from(cluster, client, queue) == 0
        assert await retention_problems(client, ["broker-a"]) == []


async def test_a_lost_table_does_not_make_a_jump_true(tmp_path: Path, wall: WallClock) -> None:
    async with run_broker(tmp_path, **SMALL) as cluster:
        client, queue = await filled(cluster)
        await cluster.stop_broker()
        for file in (tmp_path / "data" / "config").glob("retentionClock*"):
            file.write_text("{}")  # as the broker asks for if both are missing
        wall.shift_s = 80 * HOUR_S
        await cluster.start_broker()
        assert await kept_from(cluster, client, queue) == 0


@pytest.mark.parametrize("starts", [1, 2])
async def test_files_written_before_the_first_look_are_dated_after_a_crash(
    tmp_path: Path, wall: WallClock, starts: int
) -> None:
    """The wall clock was behind when the first ones were written, and is right since then."""
    async with run_broker(tmp_path, **SMALL) as cluster:
        wall.shift_s = -80 * HOUR_S
        client, queue = await filled(cluster)
        wall.shift_s = 0
        await client.send(queue, OutgoingMessage(TOPIC, b"x" * 90_000))
        for _ in range(starts):
            await cluster.stop_broker(crash=True)
            await cluster.start_broker()
        assert await kept_from(cluster, client, queue) == 0


async def test_messages_that_are_old_by_the_time_that_passed_are_deleted(
    tmp_path: Path, wall: WallClock
) -> None:
    async with run_broker(tmp_path, **SMALL) as cluster:
        client, queue = await filled(cluster)
        await wall.let_pass(cluster, 73)
        assert await kept_from(cluster, client, queue) > 0


async def test_unread_messages_are_announced_before_they_are_deleted_and_counted_after(
    tmp_path: Path, wall: WallClock
) -> None:
    async with run_broker(tmp_path, **SMALL) as cluster:
        client, queue = await filled(cluster)
        await wall.let_pass(cluster, 60)  # of 72
        with structlog.testing.capture_logs() as logs:
            assert await kept_from(cluster, client, queue) == 0
        (warning,) = [each for each in logs if "about to delete" in each["event"]]
        assert (warning["group"], warning["topic"], warning["messages"]) == (GROUP, TOPIC, 3)
        assert (
            "is about to delete 3 messages" in (await retention_problems(client, ["broker-a"]))[0]
        )
        await wall.let_pass(cluster, 13)
        with structlog.testing.capture_logs() as logs:
            first = await kept_from(cluster, client, queue)
        deleted = [each for each in logs if "were deleted" in each["event"]]
        assert {each["log_level"] for each in deleted} == {"warning"}
        assert sum(each["messages"] for each in deleted) == first - 1
        assert int((await client.runtime("broker-a"))["retentionUnreadDeleted"]) == first - 1


async def test_what_all_groups_have_read_is_deleted_without_a_warning(
    tmp_path: Path, wall: WallClock
) -> None:
    async with run_broker(tmp_path, **SMALL) as cluster:
        client, queue = await filled(cluster)
        await client.commit_offset(GROUP, queue, 6)
        await wall.let_pass(cluster, 73)
        with structlog.testing.capture_logs() as logs:
            assert await kept_from(cluster, client, queue) > 0
        assert [each for each in logs if each["log_level"] == "warning"] == []


async def test_messages_that_wait_for_replicas_are_kept_and_the_log_says_so(
    tmp_path: Path, wall: WallClock
) -> None:
    sync = {"replication": "sync", "in_sync_replicas": 2}
    async with run_broker(tmp_path, **SMALL, **sync) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        client = await cluster.client()
        for _ in range(6):
            await client.send(queue, OutgoingMessage(TOPIC, b"x" * 90_000))
        written_now(cluster)
        await wall.let_pass(cluster, 73)
        with structlog.testing.capture_logs() as logs:
            await cluster.broker.components.retention.run()
        assert cluster.broker.components.store.log.first_offset == 0
        (warning,) = [each for each in logs if each["log_level"] == "warning"]
        assert "replicas have not confirmed them" in warning["event"]


async def test_a_confirmation_names_its_author_and_reason(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as cluster:
        client = await cluster.client()
        with pytest.raises(BrokerError, match="needs the fields by and reason"):
            await client.confirm_clock("broker-a", by="", reason="x")
        await client.confirm_clock("broker-a", by="ada", reason="x")
        confirmed = cluster.broker.components.retention.clock.confirmed
        assert confirmed is not None
        assert (confirmed["by"], confirmed["reason"]) == ("ada", "x")
