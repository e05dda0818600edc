"""Changes of a topic by two operators: the second one waits for its audit record meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.route_bodies import Perm, QueueData, TopicRoute
from proxy.errors import WrongState
from proxy.operator.readers import Readers
from proxy.operator.topic_desk import TopicDesk, TopicUpdate, TopicWish

TOPIC = Topic("orders")


def _with(queues: int, perm: int = Perm.READ_WRITE) -> QueueData:
    return QueueData(broker="broker-a", read_queues=queues, write_queues=queues, perm=perm)


class Brokers:
    """The client of one broker; ``topic``: None if it does not have the topic."""

    def __init__(self, topic: QueueData | None = None) -> None:
        self.topic = topic

    async def topic_route(self, topic: Topic) -> TopicRoute:
        if self.topic is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}", request="route")
        return TopicRoute(queues=(self.topic,))

    async def create_topic(self, _topic: Topic, *, queues: int, broker: Any, perm: int) -> None:
        await asyncio.sleep(0.01)
        self.topic = _with(queues, perm)

    async def define_topic(self, _topic: Topic, wanted: Sequence[QueueData]) -> None:
        await asyncio.sleep(0.01)
        (self.topic,) = wanted


class Audit:
    """Stores a record in 10 ms; ``meanwhile`` the topic is changed by another proxy."""

    def __init__(self, brokers: Brokers, meanwhile: QueueData | None = None) -> None:
        self._brokers, self._meanwhile = brokers, meanwhile

    @asynccontextmanager
    async def change(self, _change: object) -> AsyncIterator[None]:
        await asyncio.sleep(0.01)
        if self._meanwhile is not None:
            self._brokers.topic = self._meanwhile
        yield


def desk(brokers: Brokers, meanwhile: QueueData | None = None) -> TopicDesk:
    context: Any = SimpleNamespace(client=brokers, audit=Audit(brokers, meanwhile))
    return TopicDesk(context, Readers())


async def test_a_creation_does_not_change_a_topic_that_another_proxy_has_created() -> None:
    brokers = Brokers()
    with pytest.raises(WrongState, match="topic 'orders' exists, with 8 readable queues"):
        await desk(brokers, _with(8)).create(TOPIC, TopicWish("ann", "new", queues=4))
    assert brokers.topic == _with(8), "messages in queues 4 to 7 could not be read"


async def test_an_update_does_not_undo_that_of_another_proxy() -> None:
    brokers = Brokers(_with(8))
    with pytest.raises(WrongState, match="topic 'orders' was changed meanwhile"):
        await desk(brokers, _with(16)).update(TOPIC, TopicUpdate("ann", "slow", perm=Perm.READ))
    assert brokers.topic == _with(16)


async def test_changes_at_one_proxy_wait_for_each_other() -> None:
    brokers = Brokers()
    both = desk(brokers)
    created = await asyncio.gather(
        *(both.create(TOPIC, TopicWish("ann", "new", queues=count)) for count in (8, 4)),
        return_exceptions=True,
    )
    assert [isinstance(each, WrongState) for each in created] == [False, True]
    updates = (TopicUpdate("ann", "more", queues=16), TopicUpdate("ben", "no", perm=Perm.READ))
    await asyncio.gather(*(both.update(TOPIC, each) for each in updates))
    assert brokers.topic == _with(16, Perm.READ)
