"""Messages deleted by retention before any proxy has read them.

Real upstream components on brokers in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from broker_core.client import PullResult, PullStatus
from broker_core.names import QueueName
from proxy.core.jobs.spilled_chains import packed
from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Snapshot
from proxy.core.records.snapshot_parts import parts
from testkit.eventually import eventually
from tests.integration.upstream.upstreams import BILLING, one_queue, rival, upstream, write


@pytest.mark.parametrize("left", [2, 0], ids=["with others", "alone"])
async def test_deleted_messages_are_counted_before_their_queue_is_corrected(left: int) -> None:
    """P3. Apache RocketMQ answers like this for a moment after deleting a file of its log."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    async with upstream(brokers) as us:
        pull = us.client.pull

        async def without_the_first(of: QueueName, **asked: Any) -> PullResult:
            result: PullResult = await pull(of, **asked)
            if of != queue or asked["offset"] > 0:
                return result
            status = PullStatus.FOUND if left else PullStatus.NO_MATCH
            messages = result.messages[7 : 7 + left]
            return replace(result, status=status, messages=messages, next_offset=7 + left)

        with patch.object(us.client, "pull", without_the_first), capture_logs() as logs:
            _, pipeline = await us.owned(queue)
            await eventually(lambda: pipeline.position == 9)
        assert us.lane.counts[pipeline.topic].deleted_unread == 7
        (told,) = (each for each in logs if "deleted by retention" in each["event"])
        assert (told["lost"], told["first_offset"], told["next_offset"]) == (7, 0, 7 + left)


async def test_neither_finished_messages_nor_those_reported_by_refills_are_counted() -> None:
    """P3: two of eight messages were unfinished at the previous owner's last record, and two more
    were spilled.
    """
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    spilled = {b"k": packed((5, 6))}
    write(brokers, queue, rival(), *parts(Snapshot(Epoch(0), 1, 9, (1, 3), spilled=spilled)))
    brokers.deleted[queue] = 7
    brokers.committed[BILLING, queue] = 1
    async with upstream(brokers) as us:
        with capture_logs() as logs:
            _, pipeline = await us.owned(queue)
            await eventually(lambda: pipeline.position == 9)

        assert us.lane.counts[pipeline.topic].deleted_unread == 2
        assert [each["lost"] for each in logs if "deleted" in each["event"]] == [2]
        (gap,) = us.history.of("deleted")
        assert (gap["from"], gap["to"]) == (1, 7)
        assert pipeline.committable == 5, "its refill is to come"
