"""Hand-made valid histories, which tests change to violate one invariant each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from proxy.history.check import HistoryChecker
from proxy.history.findings import Report
from proxy.history.limits import Limits

QUEUE = {"topic": "orders", "queue": "broker-a_0"}
LANE = {"group": "billing", **QUEUE}


class Story:
    """Writes consecutive events, one nanosecond apart."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.epoch = 1
        self._lease = 0
        self._attempts: Counter[int] = Counter()  # by offset
        self.now_ns = 0

    def add(self, event: str, **fields: Any) -> Story:
        """Write one event of any kind."""
        self.now_ns += 1
        self.events.append({"e": event, "t_ns": self.now_ns, "wall_ms": 0, "node": "n", **fields})
        return self

    def leave_out(self, which: Callable[[dict[str, Any]], bool]) -> Story:
        """Remove the events for which *which* is true."""
        self.events = [each for each in self.events if not which(each)]
        return self

    def by(self, epoch: int) -> Story:
        """Attribute the following events to the owner with that *epoch*."""
        self.epoch = epoch
        return self

    def set_attempts(self, attempts: Mapping[int, int]) -> Story:
        """Set the numbers of counted deliveries of messages by offset; 0 for all others."""
        self._attempts = Counter(attempts)
        return self

    def wait(self, seconds: float) -> Story:
        """Let time pass without events."""
        self.now_ns += int(seconds * 1e9)
        return self

    def sent(
        self,
        offset: int,
        *,
        msg: str | None = None,
        placed: bool = True,
        key: str = "k",
        topic: str = QUEUE["topic"],
        queue: str = QUEUE["queue"],
        tag: str | None = None,
    ) -> Story:
        """Store a message at *offset* with a confirmed send. *placed*: the send names the place."""
        msg = msg or f"m{offset}"
        tagged = {} if tag is None else {"tag": tag}
        self.add("send", msg=msg, topic=topic, key=key, **tagged)
        place = {"queue": queue, "offset": offset} if placed else {}
        return self.add("send_ok", msg=msg, topic=topic, **place)

    def own(self, epoch: int, **fields: Any) -> Story:
        """Begin a new period of ownership."""
        self.epoch = epoch
        return self.add("own+", **LANE, epoch=epoch, owner="p", **fields)

    def deliver(self, offset: int, *, order: str | None = "k", **fields: Any) -> int:
        """Deliver a message and return its lease."""
        self._lease += 1
        self._attempts[offset] += 1
        self.add(
            "deliver",
            **{
                **LANE,
                "offset": offset,
                "msg": f"m{offset}",
                "order": order,
                "attempt": self._attempts[offset],
                "lease": self._lease,
                "epoch": self.epoch,
                "consumer": "c",
                **fields,
            },
        )
        return self._lease

    def ack(self, offset: int, lease: int, *, outcome: str = "ok") -> Story:
        """Accept a verdict; ``ok`` also finishes the job."""
        lane = {**LANE, "epoch": self.epoch}
        self.add("ack_ok", **lane, lease=lease, offset=offset, outcome=outcome)
        self._attempts[offset] -= outcome == "defer"
        return self.finish(offset) if outcome == "ok" else self

    def finish(self, offset: int, *, outcome: str = "ok", **fields: Any) -> Story:
        """Finish a job."""
        del self._attempts[offset]
        return self.add(
            "finish",
            **{**LANE, "epoch": self.epoch, "offset": offset, "outcome": outcome, **fields},
        )

    def expire(self, offset: int, lease: int) -> Story:
        """Expire a lease."""
        return self.add("expire", **LANE, epoch=self.epoch, offset=offset, lease=lease)

    def commit(self, offset: int, **fields: Any) -> Story:
        """Store a committed offset."""
        return self.add("commit", **{**LANE, "epoch": self.epoch, "offset": offset, **fields})

    def through(self, *offsets: int, order: str | None = "k") -> Story:
        """Deliver, ack and finish the messages one after the other."""
        for offset in offsets:
            self.ack(offset, self.deliver(offset, order=order))
        return self

    def handle_start(self, offset: int, lease: int = 0, *, order: str | None = "k") -> Story:
        """Start a handler."""
        return self._handle("handle_start", offset, lease, order)

    def handle_end(
        self, offset: int, lease: int = 0, *, order: str | None = "k", outcome: str = "ok"
    ) -> Story:
        """End a handler."""
        return self._handle("handle_end", offset, lease, order, outcome=outcome)

    def handled(self, *offsets: int, order: str | None = "k") -> Story:
        """Handle the messages successfully, one after the other."""
        for offset in offsets:
            self.handle_start(offset, order=order).handle_end(offset, order=order)
        return self

    def report(self, limits: Limits | None = None) -> Report:
        """Return the checker's report."""
        checker = HistoryChecker(limits=limits)
        for event in self.events:
            checker.on_event(event)
        return checker.report()

    def found(self) -> set[str]:
        """Return the ids of the violated invariants."""
        return set(self.report().violations)

    def write(self, path: Path) -> Path:
        """Write the story to a file."""
        path.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in self.events))
        return path

    def _handle(
        self, event: str, offset: int, lease: int, order: str | None, **fields: Any
    ) -> Story:
        msg = f"m{offset}"
        place = {**LANE, "offset": offset, "msg": msg, "order": order}
        return self.add(event, **place, attempt=1, lease=lease, consumer="c", **fields)
