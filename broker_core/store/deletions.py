"""Deletions of topics, which are records of the log.

The messages of a deleted topic stay in the log until retention takes them; behind them stands a
message of an internal topic that names the topic. Whoever reads the log in order meets it in its
place: entries of messages before it are dropped, and the next message of each queue has offset 0.
So it holds after a crash, when consume queues are rebuilt, and on a replica. Nobody can pull it.
Pure.
"""

from __future__ import annotations

from broker_core.names import Topic, check_name
from broker_core.remoting.message import KEYS, StoredMessage, encode_host, encode_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope

#: Topic of the records, all in queue 0; its offsets count deletions.
DELETIONS = Topic("ORDERLANE_SYS_DELETED_TOPICS")
_NOWHERE = encode_host("0.0.0.0", 0)


def deletion_of(topic: Topic) -> tuple[Envelope, list[BatchEntry]]:
    """The record that deletes *topic*."""
    properties = encode_properties({KEYS: topic})  # without any, zeros would end it
    return Envelope(DELETIONS, 0, _NOWHERE, _NOWHERE), [BatchEntry(0, topic.encode(), properties)]


def deleted_topic(message: StoredMessage) -> Topic | None:
    """Which topic ends with *message*; None if it is a message as any other."""
    if message.topic != DELETIONS:
        return None
    return Topic(check_name("topic", message.body.decode()))
