"""Shared by the modes of the Python conformance program: options and output lines."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from thin_client import ClientError, ConnectionLost, Message, ProxyFault, Refused, Tls

_KINDS = {ConnectionLost: "connection", Refused: "refused", ProxyFault: "fault"}
_one_at_a_time = threading.Lock()


def say(event: str, **fields: Any) -> None:
    """Write one line to the driver."""
    line = json.dumps({"e": event, **fields})
    with _one_at_a_time:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def error_of(error: BaseException) -> dict[str, Any]:
    """Return a failure as in the output lines."""
    return {
        "kind": _KINDS.get(type(error), "protocol"),
        "code": error.code if isinstance(error, Refused) else None,
        "retriable": isinstance(error, ClientError) and error.retriable,
        "text": str(error),
    }


def message_fields(message: Message) -> dict[str, Any]:
    """Return a message as in the output lines."""
    return {
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "lease": message.lease_id,
        "key": message.key,
        "order_key": message.order_key,
        "tag": message.tag,
        "properties": message.properties,
        "attempt": message.attempt,
        "born_at_ms": message.born_at_ms,
        "message_id": message.message_id,
        "left_ms": round(message.seconds_left * 1000),
        "body": message.body.decode(errors="replace"),
    }


def security_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the client's options ``token`` and ``tls``."""
    found: dict[str, Any] = {"token": options["token"]} if "token" in options else {}
    if "tls" in options:
        files = dict(options["tls"])
        found["tls"] = Tls(certificate=files.pop("cert", None), **files)
    return found
