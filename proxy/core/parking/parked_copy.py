"""The copy of a parked message: what it says of its message. Pure."""

from __future__ import annotations

from broker_core.remoting.message import StoredMessage, property_of
from proxy.core.dead_letters.copies import ORIGIN_EPOCH, ORIGIN_OFFSET, as_sent, chain_in
from proxy.core.keys.key_rules import KeyRule


def origin_of(copy: StoredMessage) -> tuple[int, int]:
    """Offset of the message that *copy* is of, or was taken out of, and the ownership period that
    the copy was made in; -1 for what it does not say.
    """
    raw = (copy.taken_from or copy).raw_properties
    return _number(raw, ORIGIN_OFFSET), _number(raw, ORIGIN_EPOCH)


def parked_chain(copy: StoredMessage, rule: KeyRule) -> bytes | None:
    """The key under which the message of *copy* was parked. One that does not say so has it by
    *rule*, from the message as it was sent.
    """
    key = chain_in(copy)
    return rule.chain_of(as_sent(copy)) if key is None else key


def _number(raw: bytes, name: str) -> int:
    text = property_of(raw, name) or ""
    return int(text) if text.isascii() and text.isdigit() else -1
