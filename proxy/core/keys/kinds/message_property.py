"""``PROPERTY:tenant``: the value of a message property set by the application. Pure.

RocketMQ's own properties cannot be order keys: clients and brokers overwrite them, and bulk readers
do not receive them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import RESERVED_PROPERTIES, StoredMessage, property_of
from proxy.core.keys.kinds.kind import KeyKind
from proxy.core.keys.order_key import Keyed, Looked, OrderKey, ValueKind, named

_MARK = "PROPERTY:"
#: Most candidates for a sample: the most frequent names.
_MOST = 8


def _compile(text: str) -> OrderKey:
    name = text.removeprefix(_MARK)
    if reason := _refused(name):
        raise ValueError(reason)
    mark = name.encode() + b"\x01"

    def of(message: StoredMessage) -> bytes | None:
        raw = message.raw_properties
        if mark not in raw:
            return None
        # If a name occurs twice, the last value that is not empty counts.
        return _key(property_of(raw, name) or message.properties.get(name))

    def look(message: Keyed) -> Looked:
        key = _key(message.properties.get(name))
        return key, ValueKind.ABSENT if key is None else ValueKind.TEXT

    return OrderKey(text, of, look, looks_at_properties=True)


def _refused(name: str) -> str:
    """Return why an application cannot set a property *name*; empty if it can."""
    if not name:
        return "the name of the property is missing"
    if name != plain_key(name):
        return f"the name {name!r} has surrounding blanks"
    if name in RESERVED_PROPERTIES:
        return f"{name} is reserved by RocketMQ"
    if "\x01" in name or "\x02" in name or any("\ud800" <= each <= "\udfff" for each in name):
        return "a name cannot contain 0x01, 0x02 or half a surrogate pair"
    return ""


def _key(value: str | None) -> bytes | None:
    key = plain_key(value or "")
    return named(key.encode()) if key else None


def _candidates(messages: Sequence[Keyed]) -> list[str]:
    names = Counter(name for message in messages for name in message.properties)
    return [f"{_MARK}{name}" for name, _ in names.most_common() if not _refused(name)][:_MOST]


MESSAGE_PROPERTY = KeyKind(
    name="PROPERTY:name",
    meaning="a property of the message",
    mark=_MARK,
    is_prefix=True,
    example="PROPERTY:tenant",
    compile=_compile,
    candidates=_candidates,
)
