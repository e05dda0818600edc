"""A broker with a wall clock set by the test, and its deliveries."""

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
    """The broker's wall clock, set by the test."""

    def __init__(self) -> None:
        self.ms = 1_790_000_000_000

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> Clock:
        """Make brokers of this process use it, and check it often."""
        clock = cls()
        for module in (sending, sending_back, delayed_delivery):
            monkeypatch.setattr(module, "wall_ms", clock)
        monkeypatch.setattr(delayed_delivery, "LOOK_AGAIN_S", 0.005)
        monkeypatch.setattr(delayed_delivery, "AGAIN_S", 0.005)
        return clock

    def __call__(self) -> int:
        return self.ms

    def set(self, ms: int) -> None:
        """Set the time to *ms*."""
        self.ms = ms

    def advance(self, ms: int) -> None:
        """Advance by *ms*, or go back if it is negative."""
        self.ms += ms


async def stored(client: BrokerClient, queue: QueueName, count: int) -> list[StoredMessage]:
    """Return all messages of *queue* once there are *count*; fail if there are more."""

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
    """Wait until the delivery has checked the clock, and delivered all due messages."""
    delivery = cluster.broker.components.delayed
    looks = 0
    turn = WaitingMessages.turn

    def counted(waiting: WaitingMessages, now_ms: int) -> bool:
        nonlocal looks
        looks += 1
        return turn(waiting, now_ms)

    def looked() -> bool:
        delivery.arrived(SCHEDULE_TOPIC, 0)  # otherwise it sleeps while nothing waits
        return looks > 2

    with patch.object(WaitingMessages, "turn", counted):
        await eventually(looked)
