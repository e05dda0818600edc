"""Placement of sent messages: into their queue, or into an internal topic until they are due,
decided or given up. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_core.broker.delay_rules import DelayRules
from broker_core.broker.transactions.records import PREPARED, place_half
from broker_core.errors import BrokerError
from broker_core.names import SCHEDULE_TOPIC, TIMER_TOPIC, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.delay_properties import (
    DELAY_LEVEL,
    DELAY_MS,
    DELAY_S,
    DELIVER_MS,
    DUE,
    REAL_QUEUE,
    REAL_TOPIC,
)
from broker_core.remoting.message import (
    SYS_TRANSACTION,
    SYS_TRANSACTION_PREPARED,
    decode_properties,
)
from broker_core.remoting.raw_properties import changed_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope

_LEVEL_MARK, _TIMER_MARK = b"DELAY\x01", b"TIMER_DE"  # one search for each in every request
_LONGEST = 18  # digits of a 64-bit number
_DELAYS = frozenset({DELAY_LEVEL, DELAY_S, DELAY_MS, DELIVER_MS})
_PREPARED = PREPARED.encode() + b"\x01"


class Placement(NamedTuple):
    """The stored form of a send: *envelope* names the topic and queue that it is stored in.

    ``due_ms`` is the delivery time of a delayed message (ms since 1970), None for others.
    """

    envelope: Envelope
    entries: list[BatchEntry]
    due_ms: int | None = None


def place(
    envelope: Envelope,
    entries: list[BatchEntry],
    *,
    producer_group: str,
    rules: DelayRules,
    now_ms: int,
) -> Placement:
    """Return where *entries*, sent to the topic and queue of *envelope*, are to be stored.

    Raises BrokerError if this broker does not accept such messages.
    """
    if _is_transactional(envelope, entries):
        (entry,) = entries
        return Placement(*place_half(envelope, entry, group=producer_group))
    together = _together(entries)
    if _LEVEL_MARK not in together and _TIMER_MARK not in together:
        return Placement(envelope, entries)
    for entry in entries:
        raw = entry.properties
        if _LEVEL_MARK in raw or _TIMER_MARK in raw:
            properties = decode_properties(raw)
            level = _level(properties)
            if level or _says_time(properties):
                if len(entries) > 1:
                    raise _illegal(
                        "a batch must not contain delayed messages: send them one by one"
                    )
                return _delayed(envelope, entry, properties, level, rules, now_ms)
    return Placement(envelope, entries)


def place_at(envelope: Envelope, entry: BatchEntry, due_ms: int) -> Placement:
    """Return a message that waits in the timer's queue until *due_ms*."""
    return _waiting(envelope, entry, TIMER_TOPIC, 0, due_ms)


def _delayed(
    envelope: Envelope,
    entry: BatchEntry,
    properties: dict[str, str],
    level: int,
    rules: DelayRules,
    now_ms: int,
) -> Placement:
    if level:
        level = min(level, len(rules.levels_ms))
        due_ms = now_ms + rules.levels_ms[level - 1]
        return _waiting(envelope, entry, SCHEDULE_TOPIC, level - 1, due_ms)
    due_ms = _due(properties, now_ms)
    if due_ms <= now_ms:
        return Placement(envelope, [entry])
    if due_ms - now_ms > rules.max_delay_ms:
        raise _illegal(
            f"the message is to be delayed by {due_ms - now_ms} ms, this broker accepts up to"
            f" {rules.max_delay_ms} ms (timer_max_delay_s)"
        )
    return place_at(envelope, entry, due_ms)


def _waiting(
    envelope: Envelope, entry: BatchEntry, topic: Topic, queue_id: int, due_ms: int
) -> Placement:
    more = {
        REAL_TOPIC: envelope.topic,
        REAL_QUEUE: str(envelope.queue_id),
        DUE: str(due_ms),
    }
    properties = changed_properties(entry.properties, more=more)
    return Placement(
        envelope._replace(topic=topic, queue_id=queue_id),
        [entry._replace(properties=properties)],
        due_ms,
    )


def _says_time(properties: dict[str, str]) -> bool:
    return any(name in properties for name in (DELAY_S, DELAY_MS, DELIVER_MS))


def _due(properties: dict[str, str], now_ms: int) -> int:
    # In RocketMQ's order, for a message with several of them.
    if DELAY_S in properties:
        return now_ms + 1000 * _number(properties, DELAY_S)
    if DELAY_MS in properties:
        return now_ms + _number(properties, DELAY_MS)
    return _number(properties, DELIVER_MS)


def _level(properties: dict[str, str]) -> int:
    return max(0, _number(properties, DELAY_LEVEL)) if DELAY_LEVEL in properties else 0


def _number(properties: dict[str, str], name: str) -> int:
    text = properties[name]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST):
        raise _illegal(f"property {name} is {text[:80]!r}: expected a number")
    return int(text)


def any_says_prepared(entries: list[BatchEntry]) -> bool:
    """Return whether the properties of one of *entries* declare a half message."""
    return _PREPARED in _together(entries) and any(map(says_prepared, entries))


def says_prepared(entry: BatchEntry) -> bool:
    """Return whether the properties declare a half message."""
    if _PREPARED not in entry.properties:
        return False
    return decode_properties(entry.properties).get(PREPARED, "").lower() == "true"


def _together(entries: list[BatchEntry]) -> bytes:
    """Return the properties of all *entries*: a name that is not in it is in none of them."""
    return b"".join([properties for _, _, properties in entries])


def _is_transactional(envelope: Envelope, entries: list[BatchEntry]) -> bool:
    """Return whether *entries* are a half message. Raise BrokerError (13) if it is invalid.

    The property decides, as in RocketMQ's brokers; their producers set the flag bit as well.
    """
    bits = envelope.sys_flag & SYS_TRANSACTION
    named = len(entries) == 1 and says_prepared(entries[0])
    # Clients before 4.6.1 leave the property in a message sent for a retry.
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
