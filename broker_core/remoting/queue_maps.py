"""Maps with queues as keys, in the form that RocketMQ's Java writes and reads. Pure.

This form is not JSON: ``{{"brokerName":"b","queueId":0,"topic":"t"}:5}``. Java cannot read a text
as the key. Source: fastjson's output of ``Map<MessageQueue, ...>``, as in ``ConsumeStats``,
``TopicStatsTable``, ``ResetOffsetBody`` and ``ConsumerRunningInfo`` of 4.9.7 and 5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from broker_core.errors import InvalidCommand
from broker_core.names import QueueName, Topic
from broker_core.remoting.json_fields import JsonObject, parse_json


def queue_fields(queue: QueueName) -> dict[str, Any]:
    """Return the JSON object of a queue."""
    return {"topic": queue.topic, "brokerName": queue.broker, "queueId": queue.queue_id}


def queue_map_to_json(items: Iterable[tuple[QueueName, Any]]) -> bytes:
    """Encode a map, its values as JSON."""
    return b"{%s}" % b",".join(
        b"%s:%s" % (orjson.dumps(queue_fields(queue)), orjson.dumps(value))
        for queue, value in items
    )


def object_to_json(fields: Mapping[str, bytes]) -> bytes:
    """Encode an object whose values are encoded already, as some of them are such maps."""
    return b"{%s}" % b",".join(
        b"%s:%s" % (orjson.dumps(name), value) for name, value in fields.items()
    )


def object_with_queue_map(
    data: bytes | memoryview, name: str, *, what: str
) -> tuple[dict[str, Any], dict[QueueName, Any]]:
    """Read an object with such a map in field *name*; return the other fields, and the map.

    Each key must be an object without nested objects. Raises InvalidCommand that names *what*.
    """
    text = bytes(data)
    start = text.find(b"%s:{" % orjson.dumps(name))
    if start < 0:
        return dict(JsonObject.parse(text, what).all()), {}
    at = start + len(orjson.dumps(name)) + 1
    pairs, end = _pairs(text, at, what)
    rest = JsonObject.parse(text[:at] + b"null" + text[end:], what)
    found = {_queue_of(key, what): parse_json(value, what=what) for key, value in pairs}
    return {key: value for key, value in rest.all().items() if key != name}, found


def _pairs(text: bytes, at: int, what: str) -> tuple[list[tuple[bytes, bytes]], int]:
    """Return the keys and values of the map that begins at *at*, and its end."""
    pairs = []
    at += 1
    while text[at : at + 1] != b"}":
        if text[at : at + 1] == b",":
            at += 1
        key_end = _end_of_value(text, at, what)
        if text[key_end : key_end + 1] != b":":
            raise InvalidCommand(f"{what} is broken at byte {key_end}: expected a colon")
        value_end = _end_of_value(text, key_end + 1, what)
        pairs.append((text[at:key_end], text[key_end + 1 : value_end]))
        at = value_end
    return pairs, at + 1


def _end_of_value(text: bytes, at: int, what: str) -> int:
    """Return the end of the value at *at*: the next comma, colon or brace of the same depth."""
    depth, in_string, start = 0, False, at
    while at < len(text):
        each = text[at : at + 1]
        if in_string:
            if each == b"\\":
                at += 1
            in_string = each != b'"'
        elif each == b'"':
            in_string = True
        elif each in b"{[":
            depth += 1
        elif depth and each in b"}]":
            depth -= 1
        elif not depth and each in b",:}]":
            if at == start:
                break
            return at
        at += 1
    raise InvalidCommand(f"{what} is broken at byte {at}: expected a queue and its value")


def _queue_of(key: bytes, what: str) -> QueueName:
    fields = JsonObject.parse(key, what)
    return QueueName(
        Topic(fields.text("topic")), fields.text("brokerName"), fields.integer("queueId")
    )
