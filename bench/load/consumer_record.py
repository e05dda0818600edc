"""The record of a lean consumer."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.frame.progress import Counter
from bench.load.delays import Delays
from bench.load.shape import Order, head_of
from thrift_idl import consumer


@dataclass(slots=True)
class ConsumerRecord:
    """Counts and judges messages. *split*: separate delays for key 0 and the rest."""

    most: int
    warm_ns: int
    split: bool
    counter: Counter | None
    count: int = 0
    stopped: bool = False
    calls: Counts[str] = field(default_factory=Counts)
    order: Order = field(default_factory=Order)
    _delays: list[Delays] = field(default_factory=list)

    def take_all(self, messages: Sequence[consumer.Message], now_ns: int) -> None:
        """Record messages of one queue that a handler starts."""
        for message in messages:
            self.take(message.value or b"", now_ns)

    def take(self, body: bytes, now_ns: int) -> None:
        """Record a message that a handler starts."""
        head = head_of(body)
        if not self._delays:
            from_ns = head.due_ns + self.warm_ns
            self._delays = [Delays(from_ns=from_ns), Delays(from_ns=from_ns)]
        self._delays[self.split and head.key == 0].add(head.due_ns, now_ns)
        self.order.judge(head.key, head.number)
        self.count += 1

    def publish(self) -> None:
        """Publish the count; stop once all messages arrived."""
        if self.counter is not None:
            self.counter.show(self.count)
        self.stopped = self.stopped or self.count >= self.most

    def stop(self, *_: object) -> None:
        """Stop soon."""
        self.stopped = True

    def figures(self) -> dict[str, float]:
        """Return the figures for the table."""
        found: dict[str, float] = {
            "handled": self.count,
            "repeated": self.order.repeated,
            "faults": self.order.faults,
            **self.calls,
        }
        if self._delays:
            rest, head = self._delays
            found |= {**rest.figures("rest_" if self.split else ""), **head.figures("head_")}
        return found
