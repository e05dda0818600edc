"""Samples a topic's messages for analysis, without lock, offset or commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.keys.kinds.registry import candidates_in
from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.sample import Sample

#: Messages per queue examined for candidates, and per request.
_LOOKED_AT, _AT_ONCE = 256, 256
#: Bytes of bodies examined for candidates: they are in memory together, and block the event loop.
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The messages of *queue* from offset *first* to below *end*."""

    queue: QueueName
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Sampling:
    """Reads messages of *topic* that the *rules* of *group* do not filter.

    *at_once*: messages read before other tasks of the event loop may run.
    """

    client: BrokerClient
    group: Group
    topic: Topic
    rules: TopicRules
    at_once: int = _AT_ONCE

    async def take(self, *, most: int, candidates: Sequence[str] = ()) -> Sample:
        """Return the newest messages of each queue, *most* in all, in proportion to the queues'
        sizes.

        Without *candidates*, these are found in the messages, and the group's own order key is
        added. Empty if there are no messages. Raises RemotingError, and ValueError with a sentence
        if a candidate is not an order key.
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
        messages: list[StoredMessage] = []
        bytes_left = _MOST_BYTES
        for number, each in enumerate(some):
            share = bytes_left // (len(some) - number)  # the first message may exceed it
            async for _, batch in self._read([each]):
                for message in batch:
                    if share > 0 and bytes_left > 0:
                        messages.append(message)
                        share -= len(message.body)
                        bytes_left -= len(message.body)
                if share <= 0 or bytes_left <= 0:
                    break
        found = candidates_in(messages)
        now = self.rules.order_key.text
        return found if now is None or now in found else [now, *found]

    async def _read(
        self, stretches: Sequence[_Stretch]
    ) -> AsyncIterator[tuple[QueueName, list[StoredMessage]]]:
        """Yield messages queue by queue; those deleted by retention meanwhile are left out."""
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
                    break  # the topic was deleted or truncated
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
