"""Where the messages of a send go, and as what: to their queue, or into a topic of the broker's
own until they are due, decided or given up. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.errors import BrokerError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import SYS_TRANSACTION, BatchEntry, Envelope, decode_properties

_DELAY = b"DELAY\x01"


@dataclass(frozen=True, slots=True)
class Placement:
    """What is stored of a send: *envelope* names the topic and queue that it is stored in."""

    envelope: Envelope
    entries: list[BatchEntry]


def place(envelope: Envelope, entries: list[BatchEntry]) -> Placement:
    """Return where *entries*, sent to the topic and queue of *envelope*, are to be stored.

    Raises BrokerError if this broker does not take such messages.
    """
    if envelope.sys_flag & SYS_TRANSACTION:
        raise BrokerError(
            ResponseCode.NO_PERMISSION, "this broker does not take transactional messages"
        )
    # Stored at once, a delayed message would come too early without a word.
    if any(_DELAY in e.properties and "DELAY" in decode_properties(e.properties) for e in entries):
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL,
            "this broker does not take delayed messages (property DELAY)",
        )
    return Placement(envelope, entries)
