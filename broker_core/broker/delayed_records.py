"""What a delayed message becomes: delivered, moved to the end of the log, or recalled. Pure.

Whatever it becomes says so by ``Envelope.prepared_offset``, which ends the one that waited.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import NamedTuple

from broker_core.broker.placement import DELAY_PROPERTIES, REAL_QUEUE, REAL_TOPIC, Placement
from broker_core.errors import InvalidCommand
from broker_core.names import TIMER_TOPIC, DelayedPlace, Topic
from broker_core.remoting.message import (
    UNIQ_KEY,
    BatchEntry,
    Envelope,
    StoredMessage,
    encode_properties,
)
from broker_core.remoting.raw_properties import changed_properties

_HANDLE_VERSION = "v1"


def delivered(
    message: StoredMessage, place: DelayedPlace, *, store_host: bytes
) -> Placement | None:
    """Return *message*, which waited at *place*, as it goes to its own topic and queue.

    None if it does not name them. Its body must not have been inflated.
    """
    topic = message.properties.get(REAL_TOPIC, "")
    queue_id = message.properties.get(REAL_QUEUE, "")
    if not (topic and queue_id.isascii() and queue_id.isdigit()):
        return None
    envelope = Envelope(
        Topic(topic),
        int(queue_id),
        message.born_host,
        store_host,
        sys_flag=message.sys_flag,
        born_ms=message.born_ms,
        reconsume_times=message.reconsume_times,
        prepared_offset=-place.number,
    )
    properties = changed_properties(message.raw_properties, without=DELAY_PROPERTIES)
    return Placement(envelope, [BatchEntry(message.flag, message.body, properties)])


def moved(message: StoredMessage, place: DelayedPlace, *, store_host: bytes) -> Placement:
    """Return a copy of *message* that waits in its stead, in the timer's queue."""
    envelope = Envelope(
        TIMER_TOPIC,
        0,
        message.born_host,
        store_host,
        sys_flag=message.sys_flag,
        born_ms=message.born_ms,
        reconsume_times=message.reconsume_times,
        prepared_offset=-place.number,
    )
    return Placement(envelope, [BatchEntry(message.flag, message.body, message.raw_properties)])


def recalled(message: StoredMessage, place: DelayedPlace, *, store_host: bytes) -> Placement:
    """Return the word that *message* was recalled; it is due never, so nobody gets to see it."""
    kept = {REAL_TOPIC: message.properties.get(REAL_TOPIC, ""), UNIQ_KEY: message.message_id}
    placed = moved(message, place, store_host=store_host)
    return Placement(
        replace(placed.envelope, sys_flag=0), [BatchEntry(0, b"", encode_properties(kept))]
    )


class RecallHandle(NamedTuple):
    """What a producer needs to recall a delayed message, as RocketMQ 5.3 writes it.

    ``number`` is ours: the ``DelayedPlace`` where it was stored; None in a handle without one.
    """

    topic: str
    broker_name: str
    due_ms: int
    message_id: str
    number: int | None = None

    def to_text(self) -> str:
        """Base64, for URLs, of the parts with blanks between."""
        parts = [_HANDLE_VERSION, self.topic, self.broker_name, str(self.due_ms), self.message_id]
        if self.number is not None:
            parts.append(str(self.number))
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> RecallHandle:
        """Inverse of ``to_text``; raises InvalidCommand on anything else."""
        try:
            version, topic, broker, due, message_id, *more = (
                base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
            )
            if version == _HANDLE_VERSION:
                return cls(topic, broker, int(due), message_id, int(more[0]) if more else None)
        except ValueError:
            pass
        raise InvalidCommand(
            f"recall handle {text[:120]!r} is none: expected what a send of a delayed message was"
            " answered with"
        )
