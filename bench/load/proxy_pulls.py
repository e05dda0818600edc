"""A lean consumer of a proxy: closed loops of Thrift calls over many connections."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.load.links import Link, Links
from bench.load.requests import answer_of
from broker_core.clock import now_ns
from proxy.core.keys.order_key import key_text
from proxy.history.record import History
from thin_client.wire import encode_call
from thrift_idl import consumer, consumer_service

_LOOK_S, _LINGER_MS, _LAST_S = 0.2, 10_000, 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """A connection's pull options, and its work per message."""

    batch: int
    max_run: int = 1
    work_ms: float = 0.0
    settle: bool = False


class MessageSink(Protocol):
    """Receives messages and decides when to stop."""

    @property
    def stopped(self) -> bool:
        """Whether to stop pulling."""

    def take_all(self, messages: Sequence[consumer.Message], now_ns: int) -> None:
        """Receive messages of one queue that a handler starts."""

    def publish(self) -> None:
        """Note that all received messages were taken."""


@dataclass(slots=True)
class _Loop:
    """The loop of one connection; *acks* are those of its current batch."""

    link: Link
    group: str
    client_id: str
    acks: list[consumer.AckBatch] = field(default_factory=list)
    held: list[dict[str, Any]] = field(default_factory=list)  # for the history
    settling: bool = False


class ProxyPuller:
    """All connections of one process."""

    def __init__(self, links: Links, taken: MessageSink, pace: Pace, history: History) -> None:
        self.calls: Counter[str] = Counter()
        self._links = links
        self._taken = taken
        self._pace = pace
        self._history = history
        self._loops: dict[int, _Loop] = {}
        self._working: list[tuple[int, int]] = []  # end of the work, and its connection

    def run(self, address: str, groups: Sequence[str], *, connections: int) -> None:
        """Run until *taken* stops; then ack the handled messages."""
        for number in range(connections):
            link = self._links.connect(address)
            group = groups[number % len(groups)]
            self._loops[link.number] = _Loop(link, group, f"puller-{number}")
            self._pull(self._loops[link.number])
        while not self._taken.stopped:
            self._turn(_LOOK_S)
        self._settle_all()

    def _turn(self, wait_s: float) -> None:
        if self._working:
            wait_s = min(wait_s, max(0.0, (self._working[0][0] - now_ns()) / 1e9))
        for link in self._links.wait(wait_s):
            loop = self._loops[link.number]
            try:
                frames = list(link.frames())
            except ConnectionError:
                # A worker with too many connections closes one between two calls.
                self.calls["connected again"] += 1
                self._links.again(link)
                continue
            for frame in frames:
                if loop.settling:
                    self._settled(loop, frame)
                else:
                    self._pulled(loop, frame)
        while self._working and self._working[0][0] <= now_ns():
            self._ended(self._loops[heapq.heappop(self._working)[1]])
        self._taken.publish()

    def _pulled(self, loop: _Loop, frame: bytes) -> None:
        answer = answer_of(frame, consumer_service.pull_result(), method="pull")
        loop.acks = []
        count = 0
        for each in (answer, *(answer.more or ())):
            if each.messages:
                self._take(loop, each)
                count += len(each.messages)
        if not count:
            self.calls["empty"] += 1
            self._pull(loop)
        elif self._pace.work_ms:
            until_ns = now_ns() + int(self._pace.work_ms * 1e6 * count)
            heapq.heappush(self._working, (until_ns, loop.link.number))
        else:
            self._ended(loop)

    def _take(self, loop: _Loop, batch: Any) -> None:
        self._taken.take_all(batch.messages, now_ns())
        leases = [message.leaseId for message in batch.messages]
        loop.acks.append(consumer.AckBatch(context=batch.context, acked=leases))
        if self._history.enabled:
            self._write(loop, batch)

    def _write(self, loop: _Loop, batch: Any) -> None:
        """Write the events of a run of one key, whose messages are handled one after the other."""
        for message in batch.messages:
            event = _event(loop, batch.context, message)
            self._history.write("handle_start", **event)
            if self._pace.work_ms:
                loop.held.append(event)
            else:
                self._history.write("handle_end", **event, outcome="ok")

    def _ended(self, loop: _Loop) -> None:
        """Note that the handler finished all its messages."""
        if loop.held:
            self._history.write_many(
                "handle_end", ({**each, "outcome": "ok"} for each in loop.held)
            )
            loop.held = []
        if self._pace.settle:
            self._settle(loop)
        elif not self._taken.stopped:
            self._pull(loop)

    def _pull(self, loop: _Loop) -> None:
        self.calls["pulls"] += 1
        request = consumer.PullRequest(
            groupId=loop.group,
            maxBatchSize=self._pace.batch,
            maxLingerTime=_LINGER_MS,
            acks=loop.acks or None,
            clientId=loop.client_id,
            maxRun=self._pace.max_run if self._pace.max_run > 1 else None,
            manyQueues=True,
        )
        loop.acks = []
        arguments = consumer_service.pull_args(request=request)
        self._links.send(loop.link, encode_call("pull", arguments, sequence_id=1))

    def _settle(self, loop: _Loop) -> None:
        self.calls["settles"] += 1
        request = consumer.AckRequest(groupId=loop.group, acks=loop.acks, clientId=loop.client_id)
        loop.acks, loop.settling = [], True
        arguments = consumer_service.settle_args(request=request)
        self._links.send(loop.link, encode_call("settle", arguments, sequence_id=1))

    def _settled(self, loop: _Loop, frame: bytes) -> None:
        answer = answer_of(frame, consumer_service.settle_result(), method="settle")
        if answer.notHeld:
            raise RuntimeError(f"{len(answer.notHeld)} leases were no longer held")
        loop.settling = False
        if not self._taken.stopped:
            self._pull(loop)

    def _settle_all(self) -> None:
        """Finish the work in progress, and ack the messages that no pull acked."""
        deadline_ns = now_ns() + int(_LAST_S * 1e9)
        while now_ns() < deadline_ns:
            for loop in self._loops.values():
                at_work = any(number == loop.link.number for _, number in self._working)
                if loop.acks and not at_work:
                    self._settle(loop)
            if not self._working and not any(loop.settling for loop in self._loops.values()):
                return
            self._turn(0.01)


def _event(loop: _Loop, context: Any, message: Any) -> dict[str, Any]:
    return {
        "group": loop.group,
        "consumer": loop.client_id,
        "topic": context.topic,
        "queue": context.qid.partition("#")[0],
        "offset": message.offset,
        "msg": message.messageId,
        "order": key_text(message.orderKey),
        "attempt": message.attempt,
        "lease": message.leaseId,
    }
