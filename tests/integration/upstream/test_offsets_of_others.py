"""A group moves between RocketMQ's own consumers and the gateway, which share its committed
offsets.

The actions of RocketMQ's consumers are simulated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker_core.client.membership import Membership
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.support.consumers import consuming
from thin_client.message import Message


@asynccontextmanager
async def served(gateway: Gateway, name: str) -> AsyncIterator[list[int]]:
    """Run a proxy and a client; yield the handled offsets."""
    offsets: list[int] = []

    async def note(message: Message) -> None:
        offsets.append(message.offset)

    proxy, at = await gateway.start_proxy()
    async with consuming(gateway, at.thrift, name, handle=note):
        yield offsets
    await gateway.close_proxy(proxy)


async def theirs_commit(gateway: Gateway, offset: int) -> None:
    """Commit as a consumer of RocketMQ's that joins for a moment: only a heartbeat makes the group
    known to a broker of 5.3, which refuses commits of unknown ones.
    """
    client = gateway.client.another("theirs")
    membership = Membership(client)
    await membership.join(gateway.group, [gateway.topic])
    await client.commit_offset(gateway.group, gateway.queue(0), offset)
    await membership.close()  # it leaves
    await client.close()


@pytest.mark.feature("proxy: offsets of RocketMQ's consumers")
@pytest.mark.parametrize("start_from", ["earliest", "latest"])
async def test_a_group_goes_on_where_the_consumers_before_it_were_there_and_back(
    brokers: Brokers, tmp_path: Path, start_from: str
) -> None:
    """Regardless of start_from. A broker that lost commits is a different case."""
    async with run_gateway(tmp_path, brokers=brokers, queues=1) as gateway:
        gateway.settings["groups"][0]["start_from"] = start_from
        client, group, queue = gateway.client, gateway.group, gateway.queue(0)
        await gateway.send([f"k{number}" for number in range(10)])
        await theirs_commit(gateway, 4)

        async with served(gateway, "there") as handled:
            await eventually(lambda: len(handled) == 6, within_s=30)
        assert sorted(handled) == [4, 5, 6, 7, 8, 9]
        # where RocketMQ's consumers would continue
        assert await client.committed_offset(group, queue) == 10

        await gateway.send([f"k{number}" for number in range(5)])
        await theirs_commit(gateway, 12)  # back for a while

        async with served(gateway, "again") as handled:
            await eventually(lambda: len(handled) == 3, within_s=30)
        assert sorted(handled) == [12, 13, 14]


@pytest.mark.feature("proxy: offsets of RocketMQ's consumers")
async def test_a_lowered_commit_does_not_move_a_group_that_has_records(
    brokers: Brokers, tmp_path: Path
) -> None:
    """It may be a late commit of a former owner: only ``orderlane offsets reset`` moves a group."""
    async with run_gateway(tmp_path, brokers=brokers, queues=1) as gateway:
        await gateway.send([f"k{number}" for number in range(6)])
        async with served(gateway, "first") as handled:
            await eventually(lambda: len(handled) == 6, within_s=30)
        await gateway.client.commit_offset(gateway.group, gateway.queue(0), 1)
        await gateway.send(["last"])
        async with served(gateway, "second") as handled:
            await eventually(lambda: 6 in handled, within_s=30)
        assert handled == [6]
