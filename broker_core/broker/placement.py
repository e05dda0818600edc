"""Where the messages of a send go, and as what: to their queue, or into a topic of the broker's
own until they are due, decided or given up. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.broker.transaction_records import PREPARED, half_part
from broker_core.errors import BrokerError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import (
    SYS_TRANSACTION,
    SYS_TRANSACTION_PREPARED,
    BatchEntry,
    Envelope,
    decode_properties,
)

_DELAY = b"DELAY\x01"
#: What RocketMQ's producers say a delay by.
_DELAYS = frozenset({"DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"})
_PREPARED = PREPARED.encode() + b"\x01"


@dataclass(frozen=True, slots=True)
class Placement:
    """What is stored of a send: *envelope* names the topic and queue that it is stored in."""

    envelope: Envelope
    entries: list[BatchEntry]


def place(envelope: Envelope, entries: list[BatchEntry], *, producer_group: str) -> Placement:
    """Return where *entries*, sent to the topic and queue of *envelope*, are to be stored.

    Raises BrokerError if this broker does not take such messages.
    """
    if _is_transactional(envelope, entries):
        (entry,) = entries
        return Placement(*half_part(envelope, entry, group=producer_group))
    # Stored at once, a delayed message would come too early without a word.
    if any(_DELAY in e.properties and "DELAY" in decode_properties(e.properties) for e in entries):
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL,
            "this broker does not take delayed messages (property DELAY)",
        )
    return Placement(envelope, entries)


def says_prepared(entry: BatchEntry) -> bool:
    """True if the message says of itself that it is a half message."""
    if _PREPARED not in entry.properties:
        return False
    return decode_properties(entry.properties).get(PREPARED, "").lower() == "true"


def _is_transactional(envelope: Envelope, entries: list[BatchEntry]) -> bool:
    """True if a half message is sent, which no batch holds. Raises BrokerError (13) for what can be
    none.

    The property says it, as at RocketMQ's brokers; their producers set the bit in the flag as well.
    """
    bits = envelope.sys_flag & SYS_TRANSACTION
    named = len(entries) == 1 and says_prepared(entries[0])
    # Clients before 4.6.1 leave the property in what they send for a retry.
    if not bits and (not named or envelope.reconsume_times):
        return False
    if bits not in (0, SYS_TRANSACTION_PREPARED) or not named:
        raise _illegal(
            f"sysFlag {envelope.sys_flag:#x} has bits of a transaction: expected"
            f" {SYS_TRANSACTION_PREPARED:#x}, with property {PREPARED} true"
        )
    if delays := _DELAYS & decode_properties(entries[0].properties).keys():
        raise _illegal(f"a transactional message cannot be delayed (property {min(delays)})")
    return True


def _illegal(why: str) -> BrokerError:
    return BrokerError(ResponseCode.MESSAGE_ILLEGAL, why)
