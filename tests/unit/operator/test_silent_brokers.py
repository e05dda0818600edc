"""Exports and single dead letters while one of two brokers does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from broker_core.errors import RequestTimeout
from broker_core.names import QueueName, Topic
from broker_core.remoting.route_bodies import Perm, QueueData, TopicRoute
from proxy.errors import Unavailable
from proxy.operator.dead_letter_desk import DeadLetterDesk, Wish
from proxy.operator.message_browser import MessageBrowser, PageWish
from proxy.operator.readers import Readers
from proxy.operator.request_models import Streamed
from testkit.messages import message
from tests.support.fake_broker_client import FakeBrokerClient

LETTERS = Topic("%DLQ%billing")


class OneSilent(FakeBrokerClient):
    """Broker B does not answer for its queue of the topic."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(**{topic: 1})
        silent = QueueName(topic, "broker-b", 0)
        self.stored[silent] = []
        for method in ("min_offset", "max_offset", "committed_offset"):
            self.fails[method, silent] = RequestTimeout("no answer in time")
        self.store(*(message(n, topic=topic) for n in range(3)))

    async def topic_route(self, topic: Topic) -> TopicRoute:
        return TopicRoute(
            queues=tuple(
                QueueData(broker=queue.broker, read_queues=1, write_queues=1, perm=Perm.READ_WRITE)
                for queue in await self.queues(topic)
            )
        )

    async def pull(self, queue: QueueName, **asked: Any) -> Any:
        asked.pop("max_bytes", None)
        return await super().pull(queue, **asked)


def desk() -> DeadLetterDesk:
    context: Any = SimpleNamespace(client=OneSilent(LETTERS))
    return DeadLetterDesk(context, is_known=lambda _: True)


async def lines_of(export: Streamed) -> list[int]:
    """Return the offsets of the exported messages; then the export has to fail."""
    pieces: list[bytes] = []

    async def read() -> None:
        async for piece in export.pieces:
            pieces.append(piece)  # those before the failure count

    with pytest.raises(Unavailable, match="are missing: broker-b: no answer in time"):
        await read()
    rows = [orjson.loads(line) for line in b"".join(pieces).splitlines()]
    places = (row.get("message", row.get("dead_letter")) for row in rows)
    return [int(place.rpartition("@")[2]) for place in places]


async def test_an_export_of_messages_has_those_of_the_others_before_it_fails() -> None:
    topic = Topic("orders")
    context: Any = SimpleNamespace(client=OneSilent(topic))
    export = MessageBrowser(context, Readers()).export(topic, PageWish(start="oldest"), None)
    assert await lines_of(export) == [0, 1, 2]
    assert [*export.unanswered] == ["broker-b"]


async def test_an_export_of_dead_letters_has_those_of_the_others_before_it_fails() -> None:
    export = desk().export("billing", Wish(limit=None))
    assert await lines_of(export) == [0, 1, 2]
    assert [*export.unanswered] == ["broker-b"]


async def test_a_dead_letter_is_found_by_id_at_a_broker_that_answers() -> None:
    found = await desk().find("billing", message(1, topic=LETTERS).message_id)
    assert found["dead_letter"] == "broker-a_0@1"


async def test_a_dead_letter_that_a_silent_broker_may_have_is_not_said_to_be_missing() -> None:
    with pytest.raises(Unavailable, match="none of the brokers that answer: broker-b: no answer"):
        await desk().find("billing", "unheard-of")
