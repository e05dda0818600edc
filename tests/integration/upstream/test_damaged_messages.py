"""A message that is damaged at its broker: its queue is read up to it, and that is shown."""

from __future__ import annotations

from structlog.testing import capture_logs

from testkit.eventually import eventually
from tests.integration.upstream.upstreams import one_queue, upstream


async def test_messages_before_it_are_delivered_and_the_queue_stands_there() -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 6
    brokers.damaged.add((queue, 3))
    with capture_logs() as logs:
        async with upstream(brokers) as us:
            _, pipeline = await us.owned(queue)
            await eventually(lambda: pipeline.damaged != "")
            assert pipeline.position == 3
            figures = pipeline.statistics()
            assert (figures.damaged, figures.damaged_until) == ("damaged on disk", 4)
            assert us.lease()
            brokers.damaged.clear()  # the file was restored
            await eventually(lambda: pipeline.position == 6)
            assert pipeline.statistics().damaged == ""
    lines = [line for line in logs if line["event"] == "reading stops at damaged messages"]
    assert len(lines) == 1


async def test_the_first_message_of_a_queue_may_be_damaged() -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 2
    brokers.damaged.update({(queue, 0), (queue, 1)})
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.damaged_until == 1)
        assert pipeline.position == 0
        assert not us.lease()
