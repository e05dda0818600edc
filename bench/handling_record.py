"""A consumer's record of its messages: count, order and times.

It is cheap enough for handlers that do nothing. ``per_s`` counts from the first handling to the
last; ``steady_per_s`` between the fractions FIRST and LAST of the messages, after the warm-up and
before the first queue is empty. Processor time is taken over the same stretch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bench.frame.progress import Counter
from thrift_idl import consumer

#: The fractions between which figures are taken.
FIRST, LAST = 0.2, 0.9


class HandlingRecord:
    """A record of *expected* messages.

    ``publish`` writes *counter*, for processes that watch the count.
    """

    def __init__(self, counter: Path, expected: int) -> None:
        self.count = 0
        self.stopped = False
        self.faults = 0
        self._expected = expected
        self._counter = Counter(counter)
        self._last: dict[str | None, int] = {}
        self._busy: set[str | None] = set()
        self._begun_ns = 0  # when the first handler began, as for all peers
        self._bars = [max(1, int(expected * FIRST)), int(expected * LAST), expected]
        self._bar = 0
        self._times: list[
            tuple[int, int]
        ] = []  # times at which a fraction was reached, with the count

    def begin(self, key: str | None, offset: int) -> None:
        """Note that a handler received a message of *key*, which has one queue."""
        last = self._last
        if not last:
            self._begun_ns = time.monotonic_ns()
        if last.get(key, -1) >= offset or key in self._busy:
            self.faults += 1
        last[key] = offset

    def hold(self, key: str | None) -> None:
        """Note that a handler of *key* keeps running: no other may start until ``let_go``."""
        self._busy.add(key)

    def let_go(self, key: str | None) -> None:
        """End ``hold``."""
        self._busy.discard(key)

    def end(self, messages: int = 1) -> None:
        """Note *count* handled messages."""
        self.count = count = self.count + messages
        if self._bar < 3 and count >= self._bars[self._bar]:
            while self._bar < 3 and count >= self._bars[self._bar]:
                self._times.append((time.monotonic_ns(), count))
                self._bar += 1

    def take_all(self, messages: Sequence[consumer.Message], _now_ns: int) -> None:
        """Note messages that were handled on arrival."""
        begin = self.begin
        for message in messages:
            begin(message.key, message.offset or 0)
        self.end(len(messages))

    def publish(self) -> None:
        """Publish the count."""
        self._counter.show(self.count)

    def stop(self, *_: object) -> None:
        """Stop pulling."""
        self.stopped = True

    def figures(self) -> dict[str, float]:
        """Return the figures of an arm, after all messages were handled."""
        (first, first_count), (last, last_count), (ended, _) = self._times
        seconds = max(ended - self._begun_ns, 1) / 1e9
        return {
            "per_s": self._expected / seconds,
            "seconds": seconds,
            "steady_per_s": (last_count - first_count) / (max(last - first, 1) / 1e9),
            "faults": self.faults,
        }
