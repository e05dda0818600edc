"""Renewal of the orderly locks of all groups of a client by one request; unknown to RocketMQ. Pure.

The body lists the locks: ``{group: {topic: [queue id, ...]}}``. It is the same each time until the
locks change, so both sides keep it encoded and decoded. The answer lists those that were not
renewed, in the same form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from broker_core.errors import InvalidCommand
from broker_core.names import Group, Topic
from broker_core.remoting.bodies import MAX_LOCK_BYTES
from broker_core.remoting.header_fields import Header
from broker_core.remoting.json_fields import JsonObject

#: A lock of a broker: group, topic and queue id.
LockName = tuple[Group, Topic, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLocksHeader(Header):
    """The client that holds the locks."""

    client_id: str


def lock_names_to_json(locks: Iterable[LockName]) -> bytes:
    """Return the body."""
    nested: dict[str, dict[str, list[int]]] = {}
    for group, topic, queue_id in locks:
        nested.setdefault(group, {}).setdefault(topic, []).append(queue_id)
    return orjson.dumps(nested)


def lock_names_from_json(data: bytes | memoryview) -> list[LockName]:
    """Read the body. Raise InvalidCommand."""
    fields = JsonObject.parse(data, "locks", max_bytes=MAX_LOCK_BYTES)
    return [
        (Group(group), Topic(topic), queue_id)
        for group in fields.all()
        for topic, ids in fields.object(group).all().items()
        for queue_id in _ids(topic, ids)
    ]


def _ids(topic: str, ids: Any) -> list[int]:
    if not isinstance(ids, list) or not all(type(each) is int for each in ids):
        raise InvalidCommand(f"queues of topic {topic[:80]!r} are not a list of numbers")
    return ids
