"""The document that a delivering action's expressions read: the names of ``DELIVERED``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import orjson

from proxy.actions.document import MAX_BODY_BYTES
from proxy.actions.expression import EvaluationFailed
from proxy.core.keys.order_key import key_text
from proxy.delivery.deliverer import Delivery


def document_of(delivery: Delivery, names: Collection[str]) -> dict[str, Any]:
    """Return the values of *names*. Raises EvaluationFailed for a body in the wrong format."""
    return {name: _FIELDS[name](delivery) for name in names}


def _json(delivery: Delivery) -> Any:
    if len(delivery.body) > MAX_BODY_BYTES:
        size = f"{len(delivery.body)} bytes, more than {MAX_BODY_BYTES}"
        raise EvaluationFailed(f"needs the body as JSON, which has {size}")
    try:
        return orjson.loads(delivery.body)
    except orjson.JSONDecodeError as error:
        raise EvaluationFailed(f"needs the body as JSON, but it is invalid: {error}") from None


def _text(delivery: Delivery) -> str:
    try:
        return delivery.body.decode()
    except UnicodeDecodeError as error:
        raise EvaluationFailed(
            f"needs the body as text, but it is not UTF-8: {error.reason}; use raw for any bytes"
        ) from None


_FIELDS: dict[str, Callable[[Delivery], Any]] = {
    "attempt": lambda delivery: delivery.attempt,
    "body": _json,
    "group": lambda delivery: delivery.group,
    "key": lambda delivery: delivery.key,
    "message_id": lambda delivery: delivery.message_id,
    "offset": lambda delivery: delivery.offset,
    "order_key": lambda delivery: key_text(delivery.order_key),
    "properties": lambda delivery: delivery.properties,
    "queue": lambda delivery: delivery.queue,
    "raw": lambda delivery: delivery.body,
    "tag": lambda delivery: delivery.tag,
    "text": _text,
    "topic": lambda delivery: delivery.topic,
}
