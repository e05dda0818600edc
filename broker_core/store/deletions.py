"""Deletions of topics, stored as records in the log. Pure.

The messages of a deleted topic stay in the log until retention deletes them; a message of an
internal topic after them names the topic. A reader of the log drops the entries of messages before
that record, and the next message of each queue has offset 0. A deletion therefore survives a crash,
when consume queues are rebuilt, and reaches replicas. No client can pull the record.
"""

from __future__ import annotations

from broker_core.names import Topic, check_name
from broker_core.remoting.message import KEYS, StoredMessage, encode_host, encode_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope

#: Topic of the records, all in queue 0; its offsets count deletions.
DELETIONS = Topic("ORDERLANE_SYS_DELETED_TOPICS")
_NOWHERE = encode_host("0.0.0.0", 0)


def deletion_of(topic: Topic) -> tuple[Envelope, list[BatchEntry]]:
    """Return the record that deletes *topic*."""
    properties = encode_properties({KEYS: topic})  # without properties, zeros would end it
    return Envelope(DELETIONS, 0, _NOWHERE, _NOWHERE), [BatchEntry(0, topic.encode(), properties)]


def deleted_topic(message: StoredMessage) -> Topic | None:
    """Return the topic that *message* deletes, or None if it is any other message."""
    if message.topic != DELETIONS:
        return None
    return Topic(check_name("topic", message.body.decode()))
