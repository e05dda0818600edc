"""``KEY``: the message key, which is the whole property KEYS. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import StoredMessage
from proxy.core.keys.kinds.kind import KeyKind
from proxy.core.keys.order_key import (
    SURELY_SHORT_BYTES,
    Keyed,
    Looked,
    OrderKey,
    ValueKind,
    named,
)


def _of(message: StoredMessage) -> bytes | None:
    key = message.key_bytes
    return key if key is None or len(key) <= SURELY_SHORT_BYTES else named(key)


def _look(message: Keyed) -> Looked:
    key = plain_key(message.key or "")
    return (named(key.encode()), ValueKind.TEXT) if key else (None, ValueKind.ABSENT)


def _candidates(messages: Sequence[Keyed]) -> list[str]:
    return ["KEY"] if any(message.key for message in messages) else []


MESSAGE_KEY = KeyKind(
    name="KEY",
    meaning="KEY (the message's key)",
    mark="KEY",
    compile=lambda text: OrderKey(text, _of, _look),
    candidates=_candidates,
)
