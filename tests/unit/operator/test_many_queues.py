"""Pages of topics with more queues than one page could read in full."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker_core.names import Topic
from broker_core.remoting.route_bodies import Perm, QueueData, TopicRoute
from proxy.operator.message_browser import MOST_READ, MessageBrowser, PageWish
from proxy.operator.message_pages import MOST_QUEUES
from proxy.operator.readers import Readers
from testkit.messages import message
from tests.support.fake_broker_client import FakeBrokerClient

TOPIC = Topic("orders")
EACH = MOST_READ // MOST_QUEUES + 5


class Client(FakeBrokerClient):
    """One broker with as many queues as a page covers, the later ones with older messages."""

    def __init__(self) -> None:
        super().__init__(**{TOPIC: MOST_QUEUES})
        for number in range(MOST_QUEUES):
            at_ms = (MOST_QUEUES - number) * 1000
            for n in range(EACH):
                self.store(message(n, topic=TOPIC, queue_id=number, store_ms=at_ms + n))

    async def topic_route(self, _topic: Topic) -> TopicRoute:
        many = MOST_QUEUES
        data = QueueData(
            broker="broker-a", read_queues=many, write_queues=many, perm=Perm.READ_WRITE
        )
        return TopicRoute(queues=(data,))

    async def pull(self, queue: Any, **asked: Any) -> Any:
        asked.pop("max_bytes", None)
        return await super().pull(queue, **asked)


async def test_the_oldest_messages_come_first_from_whatever_queue() -> None:
    context: Any = SimpleNamespace(client=Client())
    page = await MessageBrowser(context, Readers()).page(TOPIC, PageWish(start="oldest", limit=30))
    last = MOST_QUEUES - 1
    assert [row["message"] for row in page["messages"]] == [
        f"broker-a_{last}@{n}" for n in range(30)
    ]
