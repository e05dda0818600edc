"""A misbehaving thin client: it fails, is slow, forgets, and repeats calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from proxy.core.keys.order_key import key_text
from testkit.simulation.clients import digest
from testkit.simulation.history import Pen
from tests.mutants.world import GROUP, RunningProxy, World
from thin_client.addresses import parse_address
from thin_client.aio_connection import AsyncConnection
from thin_client.calls import Call, control
from thin_client.errors import ClientError
from thin_client.servers import Destination
from thrift_idl import consumer, consumer_service

_LINGER_MS = 10_000


@dataclass
class Worker:
    """Pulls and handles one batch after the other."""

    world: World
    proxy: RunningProxy
    name: str
    batch: int = 4
    work_s: float = 0.01
    fails: Set[str] = frozenset()
    """Keys whose messages fail while listed here."""
    slow: frozenset[str] = frozenset()
    """Keys whose messages take 12 s each; their leases are extended."""
    stuck: frozenset[str] = frozenset()
    """Keys whose messages take 45 s."""
    max_run: int = 1
    """Maximum messages of a key at once, in order."""
    sloppy: bool = True
    """Sometimes it nacks, releases or forgets a message, or repeats a call."""

    def __post_init__(self) -> None:
        self._connection: AsyncConnection | None = None
        self._seen: Counter[tuple[str, int]] = Counter()
        self._pulls = 0

    def go_to(self, proxy: RunningProxy) -> None:
        """Pull at *proxy* from now on."""
        self.proxy, self._connection = proxy, None

    async def run(self) -> None:
        """Run until its proxy ends."""
        self._pen = Pen(self.world.simulated.events, self.name, parts=("consumer",))
        acks: list[Any] = []
        while not self.proxy.dead:
            answer = await self._pull(acks)
            acks = []
            if answer is None:
                await asyncio.sleep(0.5)
                continue
            for part in (answer, *(answer.more or ())):
                acks += [await self._handle_all(part)] if part.messages else []

    async def _pull(self, acks: list[Any]) -> Any:
        self._pulls += 1
        request = consumer.PullRequest(
            groupId=GROUP,
            maxBatchSize=self.batch,
            maxLingerTime=_LINGER_MS,
            clientId=self.name,
            requestId=f"{self.name}-{self._pulls}",
            manyQueues=True,
            maxRun=self.max_run,
            acks=acks,
        )
        answer = await self._pulled(request)
        if self.sloppy and self._pulls % 5 == 0 and answer is not None and answer.messages:
            await asyncio.sleep(0.2)  # that answer was lost
            answer = await self._pulled(request)
        return answer

    async def _pulled(self, request: consumer.PullRequest) -> Any:
        arguments = consumer_service.pull_args(request=request)
        return await self._call(Call("pull", arguments, consumer_service.pull_result()))

    async def _call(self, call: Call[Any]) -> Any:
        """Return the proxy's answer; None if it fails or dies first."""
        try:
            if self._connection is None or self._connection.closed:
                there = Destination(parse_address(self.proxy.thrift))
                self._connection = await AsyncConnection.open(there, timeout_s=5)
            return await self._connection.call(call, timeout_s=2 * _LINGER_MS / 1000)
        except ClientError:
            await asyncio.sleep(0.1)
            return None

    async def _handle_all(self, part: Any) -> Any:
        acked, nacked, released = [], [], []
        failed = set()  # keys whose later messages in the run go back
        for message in part.messages:
            if message.orderKey in failed:
                released.append(message.leaseId)
                continue
            match await self.handle(part.context, message):
                case "ok" | "late":
                    acked.append(message.leaseId)
                case "forget":
                    failed.add(message.orderKey)
                case "retry":
                    failed.add(message.orderKey)
                    nacked.append(consumer.Nack(leaseId=message.leaseId))
                case "defer":
                    failed.add(message.orderKey)
                    released.append(message.leaseId)
        return consumer.AckBatch(
            context=part.context, acked=acked, nacked=nacked, released=released
        )

    async def handle(self, context: Any, message: Any) -> str:
        """Handle one message; return the outcome for its lease."""
        queue, key = context.qid.partition("#")[0], key_text(message.orderKey)
        self._seen[queue, message.offset] += 1
        outcome = self._outcome(message, self._seen[queue, message.offset])
        if outcome in ("defer", "forget"):
            return outcome
        about = {
            "group": GROUP,
            "topic": context.topic,
            "queue": queue,
            "offset": message.offset,
            "msg": message.messageId,
            "order": key,
            "attempt": message.attempt,
            "lease": message.leaseId,
            "consumer": self.name,
        }
        seen = digest(message.value, message.key, message.tag, message.properties or {})
        self._pen.write("handle_start", **about, digest=seen)
        if outcome == "late":
            await asyncio.sleep(6)  # longer than its lease
        await self.work(context, message)
        self._pen.write("handle_end", **about, outcome="ok" if outcome == "late" else outcome)
        return outcome

    async def work(self, context: Any, message: Any) -> None:
        """Work on one message, extending its lease."""
        work_s = (
            12.0 if message.key in self.slow else 45.0 if message.key in self.stuck else self.work_s
        )
        while work_s > 0:
            await asyncio.sleep(min(work_s, 2))
            work_s -= 2
            if work_s > 0:
                await self._extend(context, message)

    def _outcome(self, message: Any, times: int) -> str:
        if message.key in self.fails:
            return "retry"
        if not self.sloppy or times > 1:
            return "ok"
        place = message.offset % 93
        return {3: "retry", 11: "defer", 17: "forget", 24: "late", 50: "retry"}.get(place, "ok")

    async def ack(self, context: Any, message: Any) -> None:
        """Ack one message at once."""
        batch = consumer.AckBatch(context=context, acked=[message.leaseId])
        request = consumer.AckRequest(groupId=GROUP, acks=[batch])
        await self._call(control(request))

    async def _extend(self, context: Any, message: Any) -> None:
        lease = consumer.LeaseRef(context=context, leaseId=message.leaseId)
        request = consumer.ExtendRequest(groupId=GROUP, leases=[lease], ms=5000)
        await self._call(control(request))
