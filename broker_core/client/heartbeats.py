"""Heartbeats of a client: periodic, and after every new connection, since its broker has forgotten
the client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable

import structlog

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import BrokerError, NotRegistered, RemotingError, RequestTimeout
from broker_core.names import Topic
from broker_core.remoting.bodies import Heartbeat
from broker_core.tasks import cancel_and_wait, spawn

_log = structlog.get_logger("heartbeats")


class Heartbeats:
    """Heartbeats of one client in one role. An unreachable broker is logged and tried again."""

    def __init__(
        self,
        client: BrokerClient,
        content: Callable[[], Heartbeat | None],
        *,
        topics: Callable[[], Iterable[Topic]],
        every_s: float,
    ) -> None:
        """Prepare heartbeats.

        *content* returns the heartbeat, or None, and *topics* those whose brokers receive it.
        *every_s* is the longest time between two heartbeats.
        """
        self._client = client
        self._content = content
        self._topics = topics
        self._every_s = every_s
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._failing: set[str] = set()  # brokers whose last heartbeat failed
        self._version = 1  # of the content that brokers must know; see ``resend_all``
        self._notified: dict[str, int] = {}  # version that each broker has had
        self._send_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._silent: set[str] = set()  # brokers that did not answer the last one in time
        self._due: dict[str, int | None] = {}  # version that brokers need; see ``_beat_at``
        self._beating: dict[str, asyncio.Task[None]] = {}  # sends what is due, by broker
        self._finding: asyncio.Task[None] | None = None  # looks for brokers of further topics
        client.call_on_connect(self._connected)

    def start(self) -> None:
        """Start sending heartbeats in the background, if not started yet."""
        if self._running is None:
            self._running = spawn(self._run(), name="heartbeats")

    async def close(self) -> None:
        """Stop sending heartbeats."""
        await cancel_and_wait(self._running, self._finding, *self._beating.values())

    def send_lock(self, broker: str) -> asyncio.Lock:
        """Return the lock to hold while sending to *broker*: a heartbeat must not overtake a
        leave.
        """
        return self._send_locks[broker]

    def resend_all(self) -> None:
        """Send the next heartbeats to all brokers: one of them seems to have forgotten this
        client.
        """
        self._version += 1

    async def beat(self, *, missing_only: bool = False) -> None:
        """Send a heartbeat to all brokers now, or only to those without one yet. Raises nothing.

        Brokers are independent; one that did not answer the last time is not waited for.
        """
        brokers = await self.brokers(self._topics())
        version = self._version if missing_only else None
        self._begin_at(brokers & self._silent, version)
        await asyncio.gather(
            *(self._beat_at(broker, version) for broker in sorted(brokers - self._silent))
        )

    async def brokers(self, topics: Iterable[Topic]) -> set[str]:
        """Return the brokers of *topics*, as far as routes are available.

        A nameserver that does not answer is waited for once, not again for each topic.
        """
        brokers: set[str] = set()
        unanswered = False
        for topic in sorted(topics):
            if unanswered and not self._client.knows_route(topic):
                continue
            try:
                brokers.update(await self._client.broker_names(topic))
            except RemotingError as error:
                unanswered = not isinstance(error, BrokerError | NotRegistered)
                _log.debug("no brokers for topic", topic=topic, reason=str(error))
        return brokers

    def _connected(self) -> None:
        self.resend_all()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()
            self._wake.clear()
            # No slow broker or nameserver is waited for: the next wake-up may come from a broker
            # that has just forgotten this client.
            topics = set(self._topics())
            known = {topic for topic in topics if self._client.knows_route(topic)}
            self._begin_at(await self.brokers(known), None)
            if topics > known and (self._finding is None or self._finding.done()):
                self._finding = spawn(self._find(topics - known), name="brokers for heartbeats")

    async def _find(self, topics: Iterable[Topic]) -> None:
        """Send heartbeats to the brokers of *topics*, whose routes are not known yet."""
        self._begin_at(await self.brokers(topics), None)

    def _begin_at(self, brokers: Iterable[str], needed: int | None) -> None:
        """Send a heartbeat as ``_beat_at`` to each of *brokers*, after one that is under way."""
        for broker in sorted(brokers):
            before = self._due.get(broker, needed)
            due = None if needed is None or before is None else max(needed, before)
            self._due[broker] = due
            if (task := self._beating.get(broker)) is None or task.done():
                name = f"heartbeat at {broker}"
                self._beating[broker] = spawn(self._beat_while_due(broker), name=name)

    async def _beat_while_due(self, broker: str) -> None:
        while broker in self._due:
            await self._beat_at(broker, self._due.pop(broker))

    async def _beat_at(self, broker: str, needed: int | None) -> None:
        """Send a heartbeat to *broker*, unless it has had the *needed* version (None: always).

        A thousand groups that are joined at a time share two heartbeats.
        """
        async with self._send_locks[broker]:
            if needed is not None and self._notified.get(broker, 0) >= needed:
                return
            version = self._version
            if (said := self._content()) is None:
                return
            try:
                await self._client.heartbeat(broker, said)
            except RemotingError as error:
                if broker not in self._failing:
                    _log.warning("heartbeat failed, trying again", broker=broker, reason=str(error))
                self._failing.add(broker)
                self._notified.pop(broker, None)
                if isinstance(error, RequestTimeout):
                    self._silent.add(broker)
                else:
                    self._silent.discard(broker)
            else:
                self._failing.discard(broker)
                self._silent.discard(broker)
                self._notified[broker] = version
