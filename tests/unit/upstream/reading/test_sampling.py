"""Samples of topics whose messages are large."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from broker_core.client import PullResult, PullStatus
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.keys.kinds import registry
from proxy.upstream.reading import sampling
from proxy.upstream.reading.sampling import Sampling
from testkit.messages import json_message
from testkit.pipelines import rules

MIB = 1 << 20


@dataclass
class Broker:
    """Queues of *messages* messages whose bodies have a little more than *body_bytes*."""

    queues_: int
    messages: int
    body_bytes: int
    pulled: list[int] = field(default_factory=list)  # queue ids

    async def queues(self, topic: Topic) -> list[QueueName]:
        return [QueueName(topic, "broker-a", number) for number in range(self.queues_)]

    async def min_offset(self, _queue: QueueName) -> int:
        return 0

    async def max_offset(self, _queue: QueueName) -> int:
        return self.messages

    async def pull(
        self, queue: QueueName, *, offset: int, max_messages: int, **_others: Any
    ) -> PullResult:
        self.pulled.append(queue.queue_id)
        body = {f"in{queue.queue_id}": "x" * self.body_bytes}
        messages = [json_message(each, body) for each in range(offset, offset + max_messages)]
        end = offset + max_messages
        return PullResult(
            status=PullStatus.FOUND,
            messages=messages,
            next_offset=end,
            min_offset=0,
            max_offset=self.messages,
        )


def sampling_of(broker: Broker) -> Sampling:
    return Sampling(broker, Group("g"), Topic("orders"), rules(), at_once=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("broker", "looked_at"), [(Broker(4, 20, MIB // 2), 8), (Broker(3, 60, 100), 180)]
)
async def test_candidates_are_searched_in_a_few_mebibytes_of_all_queues(
    broker: Broker, looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[StoredMessage] = []

    def candidates_in(messages: list[StoredMessage]) -> list[str]:
        seen.extend(messages)
        return registry.candidates_in(messages)

    monkeypatch.setattr(sampling, "candidates_in", candidates_in)
    sample = await sampling_of(broker).take(most=10_000)
    assert {f"$.in{number}" for number in range(broker.queues_)} <= set(sample.candidates)
    assert len(sample) == broker.queues_ * broker.messages
    assert len(seen) == looked_at
