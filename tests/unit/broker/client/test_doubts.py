"""Errors after which a message may be stored, and those after which it certainly is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from broker_core.broker.store_answers import not_written
from broker_core.client.gathered import Gathered
from broker_core.client.queue_moves import before_a_send, is_in_doubt
from broker_core.errors import (
    STOPPING,
    BrokerError,
    ConnectionLost,
    InvalidCommand,
    LocalProtocolError,
    MayBeStored,
    NotConnected,
    NotSent,
    NotSentInTime,
    RemotingError,
    RequestTimeout,
)
from broker_core.tasks import spawn


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("gone"),
        RequestTimeout("no answer"),
        InvalidCommand("an answer without an offset"),
        BrokerError(10, "not flushed in time"),
        BrokerError(12, "not replicated in time"),
        not_written(MayBeStored(5, "Input/output error")),
    ],
    ids=repr,
)
def test_the_message_may_be_stored(error: RemotingError) -> None:
    assert is_in_doubt(error)
    with pytest.raises(NotSent), before_a_send():
        raise error


@pytest.mark.parametrize(
    "error",
    [
        NotConnected("refused"),
        NotSentInTime("no room"),
        NotSent("behind another"),
        LocalProtocolError("too long"),
        BrokerError(2, "busy"),
        BrokerError(14, STOPPING),
        not_written(OSError(28, "No space left on device")),
    ],
    ids=repr,
)
def test_the_message_is_not_stored(error: RemotingError) -> None:
    assert not is_in_doubt(error)
    with pytest.raises(type(error)), before_a_send():
        raise error


@pytest.mark.failing_tasks
async def test_a_client_that_closes_leaves_calls_in_doubt_that_it_has_sent() -> None:
    asked = asyncio.Event()

    async def together(_broker: str, _entries: Sequence[int]) -> Sequence[int]:
        asked.set()
        await asyncio.Event().wait()
        return []

    async def alone(_broker: str, entry: int) -> int:
        return entry

    calls = Gathered[int, int]("send", together=together, alone=alone, size_of=lambda _: 1)
    sent = [spawn(calls.call("broker-a", n), name="send") for n in range(2)]
    await asked.wait()
    await calls.close()
    for each in sent:
        with pytest.raises(ConnectionLost) as lost:
            await each
        assert is_in_doubt(lost.value)
    with pytest.raises(NotConnected):
        await calls.call("broker-a", 3)
