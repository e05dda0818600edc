"""The modes ``produce`` and ``oneshot`` of the Python conformance program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from testkit.thin_clients.lines import error_of, message_fields, say, security_of
from thin_client import (
    ClientError,
    Defer,
    Message,
    Outgoing,
    Producer,
    Puller,
    Reject,
    Retry,
    SendFailed,
)
from thin_client.key_hash import key_hash

_FIELDS = ("key", "sharding_key", "sharding_path", "queue", "tag", "properties")


def _asked() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


# ---- produce ----------------------------------------------------------------------------------


def _outgoing(message: dict[str, Any]) -> Outgoing:
    fields = {name: message[name] for name in _FIELDS if message.get(name) is not None}
    if message.get("delay_ms") is not None:
        fields["delay_s"] = message["delay_ms"] / 1000
    return Outgoing(message["topic"], message["body"], **fields)


def _sent(producer: Producer, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outcome of each message of one call."""
    given = [(message.get("properties") or {}).get("UNIQ_KEY") for message in messages]
    try:
        if len(messages) == 1:
            ids = producer.send_batch([_outgoing(messages[0])])
        else:
            ids = producer.send_batch([_outgoing(message) for message in messages])
    except SendFailed as error:
        ids = list(error.failures) if len(error.failures) == len(given) else given
        return [
            {
                "message_id": each,
                "error": error.failures.get(each),
                "code": error.code if each in error.failures else None,
                "unknown": error.outcome_unknown and each in error.failures,
            }
            for each in ids
        ]
    except (ValueError, TypeError) as error:
        result = {"error": str(error), "code": None, "unknown": False}
        return [{"message_id": each, **result} for each in given]
    return [{"message_id": each, "error": None, "code": None, "unknown": False} for each in ids]


def _send(producer: Producer, asked: dict[str, Any]) -> None:
    messages = asked["messages"]
    calls = [messages] if asked.get("batch") else [[message] for message in messages]
    say("sent", results=[result for call in calls for result in _sent(producer, call)])


def _in_child(work: Callable[[], None]) -> None:
    """Run *work* in a forked process."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def produce(options: dict[str, Any]) -> int:
    """Send the driver's messages until its input ends."""
    producers: dict[int, Producer] = {}  # one for each requested timeout
    for asked in _asked():
        if asked["op"] == "hash":
            say("hash", hash=key_hash(asked["key"]))
            continue
        timeout_ms = asked.get("timeout_ms", 10_000)
        producer = producers.get(timeout_ms)
        if producer is None:
            security = security_of(options)
            producer = Producer(options["servers"], timeout_s=timeout_ms / 1000, **security)
            producers[timeout_ms] = producer
        if asked.get("process") == "child":
            _in_child(lambda producer=producer, asked=asked: _send(producer, asked))  # type: ignore[misc]
        else:
            _send(producer, asked)
    for producer in producers.values():
        producer.close()
    say("stopped", error=None)
    return 0


# ---- one call after the other -----------------------------------------------------------------


def _outcome(asked: dict[str, Any]) -> BaseException | None:
    after_ms = asked.get("after_ms")
    outcomes: dict[str, BaseException | None] = {
        "ok": None,
        "retry": Retry(None if after_ms is None else after_ms / 1000),
        "reject": Reject(asked.get("reason", "")),
        "defer": Defer(),
    }
    return outcomes[asked.get("do", "ok")]


def oneshot(options: dict[str, Any]) -> int:
    """Pull, settle and extend at the driver's request, until its input ends."""
    names = ("topics", "client_id")
    puller = Puller(
        options["servers"],
        group=options["group"],
        timeout_s=options.get("request_timeout_ms", 3_000) / 1000,
        **{name: options[name] for name in names if name in options},
        **security_of(options),
    )
    pulled: dict[int, Message] = {}
    for asked in _asked():
        try:
            if asked["op"] == "pull":
                messages = puller.pull(asked["max"], wait_s=asked["wait_ms"] / 1000)
                pulled.update((message.lease_id, message) for message in messages)
                say("pulled", messages=[message_fields(message) for message in messages])
            elif asked["op"] == "settle":
                held = puller.settle(pulled[asked["lease"]], _outcome(asked))
                say("settled", held=held)
            else:
                held = puller.extend(pulled[asked["lease"]], asked["ms"] / 1000)
                say("extended", held=held)
        except ClientError as error:
            say("error", **error_of(error))
    puller.close()
    say("stopped", error=None)
    return 0


MODES: dict[str, Callable[[dict[str, Any]], int]] = {"produce": produce, "oneshot": oneshot}
