"""Copies of single messages, where brokers may not tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.client.queries import MOST_OF_ID, FoundByKey
from broker_core.errors import BrokerError, NotConnected, RemotingError
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.copies import ORIGIN_OFFSET, ORIGIN_QUEUE
from proxy.operator.message_lookup import has_copy
from testkit.messages import message
from testkit.pipelines import queue

COPIES = Topic("%DLQ%billing")
STORED = message(7)
AWAY = NotConnected("broker-a is away")


def copy_of(offset: int) -> StoredMessage:
    return message(0, **{ORIGIN_QUEUE: queue(0).qid, ORIGIN_OFFSET: str(offset)})


class Brokers:
    """Two brokers, each with its copies or its error; or an error instead of a route."""

    def __init__(self, *answers: list[StoredMessage] | RemotingError) -> None:
        self._answers = {f"broker-{name}": each for name, each in zip("ab", answers, strict=False)}
        self._failure = answers[0] if len(answers) == 1 else None
        self.queries = SimpleNamespace(find=self._find)

    async def topic_route(self, _topic: Topic) -> Any:
        if isinstance(self._failure, RemotingError):
            raise self._failure
        return SimpleNamespace(brokers=[SimpleNamespace(broker=name) for name in self._answers])

    async def _find(self, broker: str, topic: Topic, *_: Any, **__: Any) -> FoundByKey:
        answer = self._answers[broker]
        if isinstance(answer, RemotingError):
            raise answer
        found = [(QueueName(topic, broker, 0), each) for each in answer]
        return FoundByKey(found, complete=len(found) < MOST_OF_ID)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (Brokers([], [copy_of(7)]), True),
        (Brokers([copy_of(7)], AWAY), True),
        (Brokers([copy_of(8)], []), False),
        (Brokers(BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no such topic")), False),
        (Brokers([copy_of(8)], AWAY), None),
        (Brokers([copy_of(8)] * 32, []), None),
        (Brokers(AWAY, AWAY), None),
        (Brokers(AWAY), None),
        (Brokers(BrokerError(ResponseCode.SYSTEM_BUSY, "busy")), None),
    ],
    ids=[
        *("at the second broker", "beside a broker that is away", "of another message"),
        *(
            "without the topic",
            "perhaps at the one that is away",
            "perhaps an older one",
            "both away",
        ),
        *("no nameserver", "a busy nameserver"),
    ],
)
async def test_a_copy_that_no_broker_can_tell_of_is_unknown(asked: Any, found: bool | None) -> None:
    assert await has_copy(asked, COPIES, queue(0), STORED) is found
