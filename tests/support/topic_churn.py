"""A topic that is created, used and deleted repeatedly while its broker is killed.

After each kill: no message of a deleted topic is visible, and unless a deletion was under way every
message with a confirmed send is at its offset, from 0 on.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.message import OutgoingMessage

TOPIC = Topic("refunds")
GROUP = Group("billing")
QUEUE = QueueName(TOPIC, "broker-a", 0)


@dataclass(slots=True)
class TopicChurn:
    """Expected contents of the topic."""

    chooser: random.Random
    deletions: int = 0  # confirmed, or found to be done
    _answered: list[bytes] = field(default_factory=list)
    _deleting: bool = False
    _life: int = 0

    async def check(self, client: BrokerClient) -> None:
        """Check after a start that all messages belong to the topic's last creation."""
        there = await _messages(client)
        begin, found = there if there is not None else (0, [])
        assert all(body.startswith(b"%d " % self._life) for body in found), found
        kept = self._answered[begin:]
        if not self._deleting:
            assert there is not None or not self._answered, "answered messages are gone"
            assert found[: len(kept)] == kept
        elif found:
            assert found[: len(kept)] == kept, "a deletion takes all or nothing"
        else:
            self.deletions += 1
            self._answered, self._deleting = [], False

    async def go_on(self, client: BrokerClient) -> None:
        """Delete and create the topic again until the broker is gone."""
        with suppress(RemotingError):
            while True:
                await self._delete(client)
                await client.create_topic(TOPIC, queues=1)
                self._life += 1
                for n in range(self.chooser.randrange(6)):
                    body = b"%d %d" % (self._life, n)
                    receipt = await client.send(QUEUE, OutgoingMessage(TOPIC, body), timeout_s=5)
                    assert receipt.offset == n, "a new topic begins at 0"
                    self._answered.append(body)
                    await client.commit_offset(GROUP, QUEUE, n + 1)

    async def _delete(self, client: BrokerClient) -> None:
        self._deleting = True
        await client.requests.ask(
            QUEUE.broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}
        )
        assert not await client.has_committed(GROUP, QUEUE)
        self._answered, self._deleting = [], False
        self.deletions += 1


async def _messages(client: BrokerClient) -> tuple[int, list[bytes]] | None:
    """Return the topic's first offset and its bodies; None if it does not exist."""
    bodies: list[bytes] = []
    begin = offset = await client.min_offset(QUEUE)
    end = await client.max_offset(QUEUE)
    try:
        await client.pull(QUEUE, group=GROUP, offset=offset, suspend_ms=0)
        while offset < end:
            pulled = await client.pull(QUEUE, group=GROUP, offset=offset, suspend_ms=0)
            if not pulled.messages:
                assert offset < pulled.next_offset
                begin = offset = pulled.next_offset  # deleted by retention
                bodies.clear()
            for message in pulled.messages:
                assert message.queue_offset == offset
                bodies.append(message.body)
                offset += 1
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise
    return begin, bodies
