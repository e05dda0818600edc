"""The offsets of a broker's own group, by which a start decides which transactions it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.names import TRANSACTION_GROUP
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.headers import PullFlag
from broker_core.remoting.message import OutgoingMessage
from testkit.broker_process import run_broker
from tests.integration.broker.raw_requests import GROUP, Raw
from tests.support.transactions import HALF, TOPIC, Desk, producer, visible

PULL = {
    "consumer_group": TRANSACTION_GROUP,
    "topic": HALF.topic,
    "sys_flag": PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET,
    "commit_offset": 5,
}
CLONE = {"srcGroup": GROUP, "destGroup": TRANSACTION_GROUP, "topic": HALF.topic, "offline": "true"}
DELETE = {"groupName": TRANSACTION_GROUP, "cleanOffset": "true"}
COMMIT = {"topic": HALF.topic, "queueId": "0", "commitOffset": "5"}
RESET = {"group": TRANSACTION_GROUP, "topic": HALF.topic, "timestamp": "-1", "isForce": "true"}


@pytest.mark.parametrize("way", ["pull", "commit", "reset", "clone", "delete"])
async def test_no_client_changes_them_and_so_hides_a_transaction(tmp_path: Path, way: str) -> None:
    async with run_broker(tmp_path) as cluster:
        queues = await cluster.create_topic(TOPIC)
        client, transactions = await producer(cluster, Desk())
        half = OutgoingMessage(TOPIC, b"half", key="k")
        transaction = await transactions.prepare(half, check_after_s=600)
        raw = Raw(cluster)
        others = {**COMMIT, "consumerGroup": GROUP}
        assert (await raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, others)).code == 0
        if way == "pull":
            answer = await raw.pull(**PULL)
        elif way == "commit":
            ext = {**COMMIT, "consumerGroup": TRANSACTION_GROUP}
            answer = await raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        elif way == "reset":
            answer = await raw.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        elif way == "clone":
            answer = await raw.ask(RequestCode.CLONE_GROUP_OFFSET, CLONE)
        else:
            answer = await raw.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DELETE)
        assert (answer.code, "are the broker's own" in (answer.remark or "")) == (16, True)
        await raw.pool.close()
        await cluster.restart_broker()
        await transaction.commit()
        assert [each.body for each in await visible(client, queues)] == [b"half"]
        await transactions.close()
