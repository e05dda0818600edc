"""The audit of refused requests: records, log lines and counts. The rate is bounded by the core."""

from __future__ import annotations

import structlog

from broker_core.clock import now_ns, wall_ms
from proxy.core.limits.refusals import Refusal, RefusalBook

_log = structlog.get_logger("audit")


class RefusalLog:
    """The refusals of all ports of one process. ``book`` has the newest records."""

    def __init__(self) -> None:
        self.book = RefusalBook()

    def note(self, *, client: str, principal: str, port: str, what: str, why: str) -> None:
        """Count a refusal, and log it unless its source was logged within a minute."""
        refusal = Refusal(client, principal, port, what, why, wall_ms())
        record = self.book.note(refusal, now_ns())
        if record is not None:
            _log.warning(
                "call refused",
                client=record.client,
                principal=record.principal or None,
                port=record.port,
                what=record.what,
                reason=record.why,
                left_out=record.left_out,
            )
