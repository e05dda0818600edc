"""Records of elected masters in the log. Pure.

A master's first message is one: once it is confirmed, so are all older messages. Another one
follows each change of a table that is answered: a replica with the record has the table as well, so
no replica without the change can be elected. No client can pull the records.
"""

from __future__ import annotations

import orjson

from broker_core.names import Topic
from broker_core.remoting.message import KEYS, encode_host, encode_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope

#: Topic of the records, all in queue 0.
EPOCHS = Topic("ORDERLANE_SYS_EPOCHS")
_NOWHERE = encode_host("0.0.0.0", 0)


def epoch_record(epoch: int, master: int) -> tuple[Envelope, list[BatchEntry]]:
    """Return a record of the replica *master* in its *epoch*."""
    body = orjson.dumps({"epoch": epoch, "master": master})
    properties = encode_properties({KEYS: str(epoch)})
    return Envelope(EPOCHS, 0, _NOWHERE, _NOWHERE), [BatchEntry(0, body, properties)]
