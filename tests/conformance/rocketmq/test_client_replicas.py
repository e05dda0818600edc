"""RocketMQ's own clients with our master and slaves: send statuses, reads from a slave, orderly
locks by majority.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_core.remoting.codes import RequestCode
from broker_core.remoting.headers import QueryConsumerOffsetHeader
from testkit.eventually import eventually, until
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import ORDERLY, TOLD, JavaClient, JavaClients
from tests.support.replica_group import TOPIC, ReplicaGroup, replica_group

pytestmark = pytest.mark.parametrize("version", VERSIONS)
STRICT = {"lock_in_strict_mode": True, "total_replicas": 3, "lock_expiry_s": 3.0}


@asynccontextmanager
async def clients_of(java: JavaClient) -> AsyncIterator[JavaClient]:
    try:
        yield java
    finally:
        await java.clear()


async def start(java: JavaClient, group: ReplicaGroup, kind: str, name: str, **fields: Any) -> None:
    where = {"nameserver": group.nameserver.address, "broker": "broker-a"}
    await java.call(
        "start", name, **{"kind": kind, "group": "billing", "topic": TOPIC, **where, **fields}
    )


async def send(java: JavaClient, bodies: list[str]) -> list[str]:
    """Statuses."""
    messages = [{"body": body, "queue": 0} for body in bodies]
    where = {"topic": TOPIC, "broker": "broker-a", "how": "sync"}
    sent = await java.call("send", "p", messages=messages, **where)
    return [each["status"] for each in sent]


@pytest.mark.feature("replicas: statuses of sends, and consumers on a slave without a master")
async def test_consumers_read_from_a_slave_while_the_master_is_down(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    java = java_clients.shared(version, TOLD)
    async with (
        replica_group(tmp_path, replication="sync", slave_timeout_s=20.0) as group,
        clients_of(java),
    ):
        await group.start(0)
        await group.start(1)
        await group.queues()
        await start(java, group, "producer", "p")
        bodies = [f"m{n}" for n in range(20)]
        assert set(await send(java, bodies)) == {"SEND_OK"}
        await group.stop(1)
        assert await send(java, ["alone"]) == ["SLAVE_NOT_AVAILABLE"]
        await group.start(1)
        await group.until_served(1, [body.encode() for body in (*bodies, "alone")])
        await group.stop(0, crash=True)

        await start(
            java, group, "push", "c",
            **{"from": "FIRST_OFFSET", "tags": "*", "orderly": False, "persistMs": 500},
        )  # fmt: skip
        await eventually(lambda: len(java.bodies("c")) >= 21, within_s=30)
        assert sorted(java.bodies("c")) == sorted([*bodies, "alone"])
        header = QueryConsumerOffsetHeader(consumer_group="billing", topic=TOPIC, queue_id=0)

        async def committed_at_the_slave() -> bool:
            answer = await group.ask(1, RequestCode.QUERY_CONSUMER_OFFSET, header.to_ext())
            return answer.ext.get("offset") == "21"

        await until(committed_at_the_slave)


@pytest.mark.feature("replicas: orderly locks by majority")
async def test_orderly_consumers_have_queues_while_a_majority_is_up(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    java = java_clients.shared(version, ORDERLY)
    async with replica_group(tmp_path, **STRICT) as group, clients_of(java):
        await group.start(0)
        for slave in (1, 2):
            await group.start(slave, **STRICT)
        await group.queues()
        await start(
            java, group, "push", "c",
            **{"from": "FIRST_OFFSET", "tags": "*", "orderly": True, "persistMs": 500},
        )  # fmt: skip

        async def until_locked(wanted: list[int]) -> None:
            async with asyncio.timeout(60):
                while await locked(java) != wanted:  # noqa: ASYNC110  # no notice
                    await asyncio.sleep(0.05)

        await until_locked([0])
        await group.stop(1)
        await group.stop(2)
        await until_locked([])
        await group.start(2, **STRICT)
        await until_locked([0])
        await start(java, group, "producer", "p")
        assert await send(java, ["a", "b"]) == ["SEND_OK"] * 2
        await eventually(lambda: java.bodies("c") == ["a", "b"], within_s=30)


async def locked(java: JavaClient) -> list[int]:
    """Return queues locked by the consumer, by its own table."""
    return [
        owned["queue"]
        for owned in await java.call("owned", "c")
        if owned["topic"] == TOPIC and owned["locked"] and not owned["expired"]
    ]
