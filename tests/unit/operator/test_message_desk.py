"""The order key of a message that is looked up."""

from __future__ import annotations

from types import SimpleNamespace

from broker_core.client import PullResult, PullStatus
from broker_core.names import QueueName
from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.records.record import Snapshot
from proxy.lane.lanes import Lanes
from proxy.operator.message_desk import MessageDesk
from testkit.lanes import GROUP, TOPIC, make_lane
from testkit.messages import json_message
from testkit.pipelines import pipeline, queue, rules


class Broker:
    """One queue with one message."""

    async def queues(self, _topic: str) -> list[QueueName]:
        return [queue()]

    async def min_offset(self, _queue: QueueName) -> int:
        return 0

    async def max_offset(self, _queue: QueueName) -> int:
        return 1

    async def pull(self, _queue: QueueName, **_others: object) -> PullResult:
        message = json_message(0, {"id": "c-17"})
        return PullResult(
            status=PullStatus.FOUND, messages=[message], next_offset=1, min_offset=0, max_offset=1
        )


async def test_it_follows_the_recorded_rule_of_a_queue_that_has_another_one_than_settings() -> None:
    lanes = Lanes(make_lane)
    lane = lanes.add(make_lane().settings)
    desk = MessageDesk(SimpleNamespace(client=Broker()), lanes)  # type: ignore[arg-type]
    assert (await desk.show(GROUP, TOPIC, "broker-a_0@0"))["order_key"] is None, "by the settings"
    keys = KeyRecord.first(rules("$.id"))
    lane.add(pipeline(rules("KEY"), epoch=2, resume=Snapshot(Epoch(1), 0, 0, (), keys=keys)))
    assert (await desk.show(GROUP, TOPIC, "broker-a_0@0"))["order_key"] == "c-17"
