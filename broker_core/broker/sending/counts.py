"""Counts of sends, for metrics. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from broker_core.remoting.codes import ResponseCode

#: Codes that sends are answered with, apart from SUCCESS. Others count as OTHER.
REFUSALS = (
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_PERMISSION,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
OTHER = "other"
_REASONS = {int(code): code.name.lower() for code in REFUSALS}


@dataclass(slots=True, eq=False)
class SendCounts:
    """Counts since the broker opened: stored ``messages``, the bytes of their bodies as received,
    and ``refused`` requests by reason: the name of the code that answers them, in lower case.
    """

    messages: int = 0
    body_bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def stored(self, messages: int, body_bytes: int) -> None:
        """Count a request whose messages are stored."""
        self.messages += messages
        self.body_bytes += body_bytes

    def refuse(self, code: int) -> None:
        """Count a request that is answered with *code*: refused, or stored but not confirmed."""
        self.refused[_REASONS.get(code, OTHER)] += 1
