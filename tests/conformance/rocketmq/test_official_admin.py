"""RocketMQ's own command line asks the embedded broker."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from broker_core.names import Group, Topic
from broker_core.remoting.message import OutgoingMessage
from tests.support.broker_process import run_broker
from tests.support.java import rocketmq_jars
from tests.support.rocketmq import VERSIONS

_LIMIT_S = 120


async def mqadmin(version: str, home: Path, *arguments: str) -> str:
    """What ``mqadmin`` prints. It exits with 0 whatever becomes of it."""
    (home / "conf").mkdir(parents=True)
    (home / "conf/logback_tools.xml").write_text("<configuration/>")  # 4.9 does not start without
    running = await asyncio.create_subprocess_exec(
        *("java", f"-Duser.home={home}", "-cp", f"{rocketmq_jars(version)}/*"),
        *("org.apache.rocketmq.tools.command.MQAdminStartup", *arguments),
        env={**os.environ, "ROCKETMQ_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        printed, _ = await asyncio.wait_for(running.communicate(), _LIMIT_S)
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    return printed.decode()


@pytest.mark.feature("mqadmin: deleteSubGroup")
@pytest.mark.parametrize("version", VERSIONS)
async def test_mqadmin_deletes_the_offsets_of_a_group(version: str, tmp_path: Path) -> None:
    gone, other = Group("billing%a"), Group("billing%b")
    async with run_broker(tmp_path / "broker") as cluster:
        queue = (await cluster.create_topic(Topic("orders")))[0]
        client = await cluster.client()
        for group in (gone, other):
            await client.commit_offset(group, queue, 0)
        where = ("-n", cluster.nameserver, "-b", cluster.broker_address)
        delete = ("deleteSubGroup", *where, "-g", gone, "-r", "true")
        printed = await mqadmin(version, tmp_path / "home", *delete)
        assert "success" in printed, printed
        assert not await client.has_committed(gone, queue)
        assert await client.has_committed(other, queue)


@pytest.mark.feature("mqadmin: deleteTopic")
@pytest.mark.parametrize("version", VERSIONS)
async def test_mqadmin_deletes_a_topic(version: str, tmp_path: Path) -> None:
    topic, kept = Topic("orders"), Topic("refunds")
    async with run_broker(tmp_path / "broker") as cluster:
        queue = (await cluster.create_topic(topic))[0]
        await cluster.create_topic(kept)
        client = await cluster.client()
        await client.send(queue, OutgoingMessage(topic, b"old"))
        delete = ("deleteTopic", "-n", cluster.nameserver, "-c", "orderlane", "-t", topic)
        printed = await mqadmin(version, tmp_path / "home", *delete)
        assert "success" in printed, printed
        assert topic not in await client.topics()
        assert kept in await client.topics()
        await cluster.create_topic(topic)
        assert (await client.send(queue, OutgoingMessage(topic, b"new"))).offset == 0
