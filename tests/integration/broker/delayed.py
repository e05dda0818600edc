"""A broker whose wall clock a test sets, and what it delivers by that."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from broker_core.broker.delays import delivery as delayed_delivery
from broker_core.broker.delays.waiting_messages import WaitingMessages
from broker_core.broker.sending import processor as sending
from broker_core.broker.sending import sending_back_processor as sending_back
from broker_core.client.broker_client import BrokerClient
from broker_core.names import SCHEDULE_TOPIC, Group, QueueName
from broker_core.remoting.message import StoredMessage
from testkit.broker_process import Cluster
from testkit.eventually import eventually


class Clock:
    """The broker's wall clock, as a test sets it."""

    def __init__(self) -> None:
        self.ms = 1_790_000_000_000

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> Clock:
        """Have brokers of this process ask it, and look at it often."""
        clock = cls()
        for module in (sending, sending_back, delayed_delivery):
            monkeypatch.setattr(module, "wall_ms", clock)
        monkeypatch.setattr(delayed_delivery, "LOOK_AGAIN_S", 0.005)
        monkeypatch.setattr(delayed_delivery, "AGAIN_S", 0.005)
        return clock

    def __call__(self) -> int:
        return self.ms

    def set(self, ms: int) -> None:
        """Show *ms* from now on."""
        self.ms = ms

    def advance(self, ms: int) -> None:
        """Go on by *ms*, or back if it is negative."""
        self.ms += ms


async def stored(client: BrokerClient, queue: QueueName, count: int) -> list[StoredMessage]:
    """All messages of *queue*, once they are *count*; fails if they are more."""

    messages: list[StoredMessage] = []
    while len(messages) < count:
        pulled = await client.pull(
            queue, group=Group("reader"), offset=len(messages), suspend_ms=10_000
        )
        assert pulled.messages, f"{len(messages)} messages came, not {count}"
        messages += pulled.messages
    assert await client.max_offset(queue) == count
    return messages


async def passed(cluster: Cluster) -> None:
    """The delivery looked at the clock, and delivered what it found due."""
    delivery = cluster.broker.parts.delayed
    looks = 0
    turn = WaitingMessages.turn

    def counted(waiting: WaitingMessages, now_ms: int) -> bool:
        nonlocal looks
        looks += 1
        return turn(waiting, now_ms)

    def looked() -> bool:
        delivery.arrived(SCHEDULE_TOPIC, 0)  # or it sleeps while nothing waits
        return looks > 2

    with patch.object(WaitingMessages, "turn", counted):
        await eventually(looked)
