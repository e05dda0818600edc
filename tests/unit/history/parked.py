"""Hand-made histories of a parked key."""

from __future__ import annotations

from typing import Any

from tests.support.histories import LANE, Story

TWIN = {"queue": "broker-a_3p"}


class Parked(Story):
    """Key ``k`` has three messages: the first failed and was parked, and the others after it."""

    def __init__(self, *, parked: int = 3) -> None:
        super().__init__()
        self.audited("a-1")
        for offset in range(3):
            self.sent(offset, queue="broker-a_3")
        self.lane = {**LANE, "queue": "broker-a_3"}
        self.add("own+", **self.lane, epoch=1, owner="p")
        lease = self.deliver(0, queue="broker-a_3")
        self.verdict(0, lease, "broker-a_3", outcome="retry")
        self.about("park", reason="attempts used up")
        for offset in range(parked):
            self.finish(offset, outcome="parked", queue="broker-a_3", order="k")

    def about(self, event: str, **fields: Any) -> Story:
        audit = {"audit": "a-1"} if event == "redrive" else {}
        by = "failure policy"
        return self.add(
            event, **{**self.lane, "epoch": 1, "order": "k", "by": by, **audit, **fields}
        )

    def audited(self, audit: str, **fields: Any) -> Story:
        """Add an audit record without those *fields* that have no value."""
        record = {"by": "ann", "reason": "so", "before": {}, "after": {}, "phase": "begin"}
        return self.add("audit", id=audit, group=LANE["group"], **{**record, **fields})

    def verdict(self, offset: int, lease: int, queue: str, *, outcome: str = "ok") -> Story:
        place = {**LANE, "queue": queue, "epoch": 1, "offset": offset}
        return self.add("ack_ok", **place, lease=lease, outcome=outcome)

    def redriven(self, *origins: int) -> Story:
        """Deliver, ack and finish each copy before the next."""
        for origin in origins:
            lease = self.copy_out(origin)
            self.verdict(origin, lease, TWIN["queue"])
            self.finish(origin, **TWIN)
        return self

    def copy_out(self, origin: int) -> int:
        return self.deliver(origin, **TWIN, attempt=1, origin_offset=origin)

    def live(self, offset: int) -> Story:
        self.verdict(offset, self.deliver(offset, queue="broker-a_3"), "broker-a_3")
        return self.finish(offset, queue="broker-a_3")
