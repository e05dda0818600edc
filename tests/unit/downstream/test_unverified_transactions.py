"""The end of a transaction whose half message cannot be looked up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_core.client import BrokerClient
from broker_core.errors import BrokerError, RemotingError, RequestTimeout
from broker_core.names import QueueName, Topic
from broker_core.remoting.half_place import HalfPlace
from proxy.downstream.send_failures import NOT_SENT
from proxy.downstream.transactions import Transactions
from thrift_idl import producer

PLACE = HalfPlace("broker-a", "orders", "pay", 7, 4_096, "5684AC598A6BA13DB9747DBC1F369292")


@pytest.mark.parametrize(
    "error",
    [
        BrokerError(1, "can not find message by the offset, 4096"),  # Apache's brokers
        RequestTimeout("broker-a did not answer"),
    ],
)
async def test_it_is_not_taken_for_one_that_ended_otherwise(error: RemotingError) -> None:
    async def at(*_: Any, **__: Any) -> Any:
        raise error

    async def find_queues(_: Topic) -> list[QueueName]:
        return []

    client = cast(BrokerClient, SimpleNamespace(queries=SimpleNamespace(at=at)))
    transactions = Transactions(client, find_queues=find_queues, max_body_bytes=1_000)
    request = producer.EndRequest(PLACE.to_text(), 1)
    assert (await transactions.end(request, verify=True)).code == NOT_SENT
