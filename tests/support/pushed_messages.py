"""Messages as passed to a push action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PushedMessage:
    """One attempt to deliver one message."""

    body: bytes = b'{"id": 1}'
    group: str = "billing"
    topic: str = "orders"
    qid: str = "broker-a_3#7"
    queue: str = "broker-a_3"
    offset: int = 12
    key: str | None = "k1"
    tag: str | None = "paid"
    properties: Mapping[str, str] = field(default_factory=dict)
    message_id: str = "AC1100"
    attempt: int = 1
    order_key: bytes | None = b"k1"
