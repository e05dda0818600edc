"""Topics with more queues than one description covers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.names import Group, Topic
from broker_core.remoting.route_bodies import Perm, QueueData, TopicRoute
from proxy.operator import topic_desk
from proxy.operator.readers import Readers
from proxy.operator.topic_desk import TopicDesk, TopicWish
from testkit.messages import message
from tests.support.fake_broker_client import FakeBrokerClient

TOPIC = Topic("orders")


class Client(FakeBrokerClient):
    """A topic of four queues with a message each, and a group that has committed nothing."""

    def __init__(self) -> None:
        super().__init__(**{TOPIC: 4})
        self.store(*(message(0, topic=TOPIC, queue_id=number) for number in range(4)))

    async def topic_route(self, _topic: Topic) -> TopicRoute:
        data = QueueData(broker="broker-a", read_queues=4, write_queues=4, perm=Perm.READ_WRITE)
        return TopicRoute(queues=(data,))

    async def consumers_at(self, _broker: str, _topic: Topic) -> list[Group]:
        return [Group("billing")]

    async def broker_settings(self, _broker: str) -> dict[str, str]:
        return {}

    async def put_rate(self, _broker: str, _topic: Topic) -> float:
        return 0.0


async def test_the_lag_of_a_group_is_that_in_all_queues_or_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context: Any = SimpleNamespace(client=Client())
    desk = TopicDesk(context, Readers())
    found = await desk.describe(TOPIC)
    assert (found["messages"], found["groups"]) == (4, [{"group": "billing", "lag": 4}])
    monkeypatch.setattr(topic_desk, "MOST_QUEUES", 3)
    found = await desk.describe(TOPIC)
    assert (found["messages"], found["groups"]) == (None, [{"group": "billing", "lag": None}])
    assert not found["complete"]
    lost = await desk.delete(TOPIC, TopicWish("ann", "over", dry_run=True))
    assert (lost["messages"], lost["groups"]) == (None, {"billing": None})
