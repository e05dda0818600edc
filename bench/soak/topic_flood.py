"""A client that creates topics without end, as far as its broker allows."""

from __future__ import annotations

import asyncio

from broker_core.client import BrokerClient
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Topic

_AT_ONCE = 4
_AGAIN_S = 0.2


class TopicFlood:
    """Creates *count* topics one by one, evenly in *seconds*."""

    def __init__(self, nameserver: str, *, count: int, seconds: float) -> None:
        self.created = 0
        self.refused = 0
        self._nameserver = nameserver
        self._count = count
        self._every_s = seconds / count
        self._next = 0
        self._stopped = False

    async def run(self) -> None:
        """Request all topics, or those until ``stop``; return once each was created or refused."""
        client = BrokerClient(nameservers=[self._nameserver], client_id="flood@1")
        await client.start()
        try:
            began_s = asyncio.get_running_loop().time()
            await asyncio.gather(*(self._request(client, began_s) for _ in range(_AT_ONCE)))
        finally:
            await client.close()

    def stop(self) -> None:
        """Request no more topics."""
        self._stopped = True

    def as_dict(self) -> dict[str, int]:
        """Return the counts for the report."""
        requested = self.created + self.refused
        return {"requested": requested, "created": self.created, "refused": self.refused}

    async def _request(self, client: BrokerClient, began_s: float) -> None:
        loop = asyncio.get_running_loop()
        while self._next < self._count and not self._stopped:
            number, self._next = self._next, self._next + 1
            await asyncio.sleep(max(0.0, began_s + number * self._every_s - loop.time()))
            await self._create(client, Topic(f"flood-{number}"))

    async def _create(self, client: BrokerClient, topic: Topic) -> None:
        while True:
            try:
                await client.create_topic(topic, queues=1)
            except BrokerError:
                self.refused += 1
                return
            except RemotingError:  # no answer in time: ask again
                await asyncio.sleep(_AGAIN_S)
            else:
                self.created += 1
                return
