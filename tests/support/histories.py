"""Hand-made histories: a small run that is right, to be bent into each way of being wrong."""

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
    """Writes events one after the other, each a nanosecond later than the last."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.epoch = 1
        self._lease = 0
        self._attempts: Counter[int] = Counter()  # by offset
        self.now_ns = 0

    def add(self, event: str, **fields: Any) -> Story:
        """One event of any kind."""
        self.now_ns += 1
        self.events.append({"e": event, "t_ns": self.now_ns, "wall_ms": 0, "node": "n", **fields})
        return self

    def leave_out(self, which: Callable[[dict[str, Any]], bool]) -> Story:
        """As if the events for which *which* is true had not been written."""
        self.events = [each for each in self.events if not which(each)]
        return self

    def by(self, epoch: int) -> Story:
        """What follows is of the owner with that *epoch*."""
        self.epoch = epoch
        return self

    def set_attempts(self, attempts: Mapping[int, int]) -> Story:
        """So many hand-outs of the messages at these offsets count, and none of others."""
        self._attempts = Counter(attempts)
        return self

    def wait(self, seconds: float) -> Story:
        """Nothing is written for so long."""
        self.now_ns += int(seconds * 1e9)
        return self

    def sent(
        self,
        offset: int,
        *,
        msg: str | None = None,
        placed: bool = True,
        key: str = "k",
        queue: str = QUEUE["queue"],
        tag: str | None = None,
    ) -> Story:
        """A message that stands at *offset*, its send answered OK; *placed*: with that place."""
        msg = msg or f"m{offset}"
        tagged = {} if tag is None else {"tag": tag}
        self.add("send", msg=msg, topic="orders", key=key, **tagged)
        place = {**QUEUE, "queue": queue, "offset": offset} if placed else {"topic": "orders"}
        return self.add("send_ok", msg=msg, **place)

    def own(self, epoch: int, **fields: Any) -> Story:
        """A new owner."""
        self.epoch = epoch
        return self.add("own+", **LANE, epoch=epoch, owner="p", **fields)

    def deliver(self, offset: int, *, order: str | None = "k", **fields: Any) -> int:
        """A hand-out; returns its lease."""
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
        """An accepted verdict; ``ok`` also finishes the job."""
        lane = {**LANE, "epoch": self.epoch}
        self.add("ack_ok", **lane, lease=lease, offset=offset, outcome=outcome)
        self._attempts[offset] -= outcome == "defer"
        return self.finish(offset) if outcome == "ok" else self

    def finish(self, offset: int, *, outcome: str = "ok", **fields: Any) -> Story:
        """The end of a job."""
        del self._attempts[offset]
        return self.add(
            "finish",
            **{**LANE, "epoch": self.epoch, "offset": offset, "outcome": outcome, **fields},
        )

    def expire(self, offset: int, lease: int) -> Story:
        """The end of a lease by time."""
        return self.add("expire", **LANE, epoch=self.epoch, offset=offset, lease=lease)

    def commit(self, offset: int, **fields: Any) -> Story:
        """A stored committed offset."""
        return self.add("commit", **{**LANE, "epoch": self.epoch, "offset": offset, **fields})

    def through(self, *offsets: int, order: str | None = "k") -> Story:
        """Each message handed out, acked and finished before the next."""
        for offset in offsets:
            self.ack(offset, self.deliver(offset, order=order))
        return self

    def handle_start(self, offset: int, lease: int = 0, *, order: str | None = "k") -> Story:
        """A handler begins."""
        return self._handle("handle_start", offset, lease, order)

    def handle_end(
        self, offset: int, lease: int = 0, *, order: str | None = "k", outcome: str = "ok"
    ) -> Story:
        """A handler ends."""
        return self._handle("handle_end", offset, lease, order, outcome=outcome)

    def handled(self, *offsets: int, order: str | None = "k") -> Story:
        """Each message handled well before the next."""
        for offset in offsets:
            self.handle_start(offset, order=order).handle_end(offset, order=order)
        return self

    def report(self, limits: Limits | None = None) -> Report:
        """The checker's verdict."""
        checker = HistoryChecker(limits=limits)
        for event in self.events:
            checker.on_event(event)
        return checker.report()

    def found(self) -> set[str]:
        """Ids of the invariants that did not hold."""
        return set(self.report().violations)

    def write(self, path: Path) -> Path:
        """The story as a file."""
        path.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in self.events))
        return path

    def _handle(
        self, event: str, offset: int, lease: int, order: str | None, **fields: Any
    ) -> Story:
        msg = f"m{offset}"
        place = {**LANE, "offset": offset, "msg": msg, "order": order}
        return self.add(event, **place, attempt=1, lease=lease, consumer="c", **fields)
