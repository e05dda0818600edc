"""Messages of a topic as its brokers have them, to be judged: no lock, no offset, no commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.keys.kinds.registry import candidates_in
from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.sample import Sample

#: Messages of each queue in which candidates are looked for, and of one request.
_LOOKED_AT, _AT_ONCE = 256, 256


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The messages of *queue* from offset *first* up to *end*, which is not among them."""

    queue: QueueName
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Sampling:
    """What is looked at: messages of *topic* that *rules* of *group* do not filter when they are
    read. *at_once*: messages between two chances for others on the event loop.
    """

    client: BrokerClient
    group: Group
    topic: Topic
    rules: TopicRules
    at_once: int = _AT_ONCE

    async def take(self, *, most: int, candidates: Sequence[str] = ()) -> Sample:
        """The newest messages of each queue, *most* in all; of each queue the same part, so that a
        full one weighs what it weighs. Without *candidates*: those that are found, and the key that
        the group has. Empty if nothing is there.

        Raises RemotingError, and ValueError, in one sentence, if a candidate is no order key.
        """
        stretches = await self._newest(most)
        sample = Sample(candidates or await self._found(stretches))
        async for queue, messages in self._read(stretches):
            qid = queue.qid
            for each in messages:
                sample.add(each, queue=qid, offset=each.queue_offset, stored_ms=each.store_ms)
        return sample

    async def _newest(self, most: int) -> list[_Stretch]:
        client = self.client
        whole = [
            _Stretch(queue, await client.min_offset(queue), await client.max_offset(queue))
            for queue in await client.queues(self.topic)
        ]
        stored = max(1, sum(each.end - each.first for each in whole))
        parts = [
            (each, -(-(each.end - each.first) * min(most, stored) // stored)) for each in whole
        ]
        return [_Stretch(each.queue, each.end - part, each.end) for each, part in parts if part]

    async def _found(self, stretches: Sequence[_Stretch]) -> list[str]:
        some = [
            _Stretch(each.queue, max(each.first, each.end - _LOOKED_AT), each.end)
            for each in stretches
        ]
        messages = [each async for _, batch in self._read(some) for each in batch]
        found = candidates_in(messages)
        now = self.rules.order_key.text
        return found if now is None or now in found else [now, *found]

    async def _read(
        self, stretches: Sequence[_Stretch]
    ) -> AsyncIterator[tuple[QueueName, list[StoredMessage]]]:
        """Queue by queue; what retention takes meanwhile is passed over."""
        for stretch in stretches:
            offset = stretch.first
            while offset < stretch.end:
                pulled = await self.client.pull(
                    stretch.queue,
                    group=self.group,
                    offset=offset,
                    max_messages=min(self.at_once, stretch.end - offset),
                    suspend_ms=0,
                )
                if pulled.next_offset <= offset:
                    break  # the topic was deleted, or cut
                offset = pulled.next_offset
                yield (
                    stretch.queue,
                    [
                        message
                        for message in pulled.messages
                        if message.queue_offset < stretch.end
                        and self.rules.unwanted(message) is None
                    ],
                )
