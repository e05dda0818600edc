"""Messages as passed to handlers of a thin client."""

from __future__ import annotations

from typing import Any

from thin_client.message import Message


def message_with(**fields: Any) -> Message:
    plain: dict[str, Any] = {
        "topic": "orders",
        "queue": "broker-a_0#1",
        "offset": 7,
        "body": b"",
        "key": None,
        "order_key_bytes": None,
        "tag": None,
        "properties": {},
        "attempt": 2,
        "born_at_ms": None,
        "message_id": None,
        "lease_id": 1,
        "deadline_ns": 0,
    }
    return Message(**{**plain, **fields})
