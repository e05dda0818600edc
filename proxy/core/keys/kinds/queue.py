"""``QID``: all messages of a queue have the same key. Pure."""

from __future__ import annotations

from proxy.core.keys.kinds.kind import KeyKind
from proxy.core.keys.order_key import QUEUE_CHAIN, OrderKey, ValueKind


def _compile(text: str) -> OrderKey:
    return OrderKey(
        text,
        lambda _message: QUEUE_CHAIN,
        lambda _message: (QUEUE_CHAIN, ValueKind.QUEUE),
        is_fixed=True,
    )


QUEUE = KeyKind(
    name="QID",
    meaning="QID (the whole queue)",
    mark="QID",
    compile=_compile,
    candidates=lambda _messages: ["QID"],
)
