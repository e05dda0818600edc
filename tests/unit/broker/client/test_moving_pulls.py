"""Answers to a pull that bring no messages and would move the reader: some are not about the
messages at its offset.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from broker_core.client import PullStatus
from broker_core.client.pulling import pull
from broker_core.client.requests import BrokerRequests
from broker_core.client.results import PulledRecords
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullMessageResponse

QUEUE = QueueName(Topic("orders"), "a", 0)


async def pulled(code: ResponseCode, remark: str, *, offset: int, moved_to: int) -> PulledRecords:
    """Pull at *offset* from a broker that answers with these."""
    place = PullMessageResponse(next_begin_offset=moved_to, min_offset=3, max_offset=9)

    class Requests:
        async def ask(self, *_: Any, **__: Any) -> RemotingCommand:
            return RemotingCommand(code, remark=remark, ext=place.to_ext())

    return await pull(
        cast(BrokerRequests, Requests()),
        QUEUE,
        group=Group("billing"),
        offset=offset,
        max_messages=32,
        suspend_ms=0,
    )


@pytest.mark.parametrize("offset", [1, 12], ids=["below its first one", "behind its end"])
async def test_a_slave_that_lacks_an_offset_does_not_say_that_it_is_deleted(offset: int) -> None:
    """Its answer, with the offset asked for, would be one without progress: a reader would ask at
    once, for ever, and a refill would count the message as deleted.
    """
    with pytest.raises(BrokerError, match="not the master answers") as refused:
        await pulled(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "OFFSET_OVERFLOW_BADLY",
            offset=offset,
            moved_to=offset,
        )
    assert refused.value.retriable


@pytest.mark.parametrize("to", [4, 7, 9], ids=["back", "where it is", "on"])
async def test_a_reset_in_an_answer_moves_nobody_and_is_logged(to: int) -> None:
    with capture_logs() as logs, pytest.raises(BrokerError, match="is ignored") as refused:
        await pulled(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", offset=7, moved_to=to)
    assert refused.value.retriable
    (line,) = logs
    assert (line["log_level"], line["group"], line["offset"]) == ("warning", "billing", to)


async def test_a_master_moves_readers() -> None:
    behind = await pulled(
        ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", offset=12, moved_to=9
    )
    assert (behind.status, behind.next_offset) == (PullStatus.OFFSET_ILLEGAL, 9)
    filtered = await pulled(
        ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", offset=4, moved_to=9
    )
    assert (filtered.status, filtered.next_offset) == (PullStatus.NO_MATCH, 9)
