"""The outcome of a delayed message: delivered, moved to the end of the log, or recalled. Pure.

Each outcome names the waiting message in ``Envelope.prepared_offset``, which ends it.
"""

from __future__ import annotations

from broker_core.broker.sending.placement import Placement
from broker_core.names import TIMER_TOPIC, DelayedPlace, Topic
from broker_core.remoting.delay_properties import DELAY_PROPERTIES, REAL_QUEUE, REAL_TOPIC
from broker_core.remoting.message import UNIQ_KEY, StoredMessage, encode_properties
from broker_core.remoting.raw_properties import changed_properties, storable_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope


def delivered(
    message: StoredMessage, place: DelayedPlace, *, store_host: bytes
) -> Placement | None:
    """Return *message*, which waited at *place*, for its own topic and queue.

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
    kept = storable_properties(message.raw_properties)
    properties = changed_properties(kept, without=DELAY_PROPERTIES)
    return Placement(envelope, [BatchEntry(message.flag, message.body, properties)])


def moved(message: StoredMessage, place: DelayedPlace, *, store_host: bytes) -> Placement:
    """Return a copy of *message* that replaces it in the timer's queue."""
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
    properties = storable_properties(message.raw_properties)
    return Placement(envelope, [BatchEntry(message.flag, message.body, properties)])


def recalled(message: StoredMessage, place: DelayedPlace, *, store_host: bytes) -> Placement:
    """Return the record that recalls *message*; it is never due, so no client receives it."""
    kept = {REAL_TOPIC: message.properties.get(REAL_TOPIC, ""), UNIQ_KEY: message.message_id}
    placed = moved(message, place, store_host=store_host)
    return Placement(
        placed.envelope._replace(sys_flag=0), [BatchEntry(0, b"", encode_properties(kept))]
    )
