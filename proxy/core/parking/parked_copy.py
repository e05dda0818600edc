"""Origin and key of a parked message, from its copy. Pure."""

from __future__ import annotations

from broker_core.remoting.message import StoredMessage, property_of
from proxy.core.dead_letters.copies import (
    ORIGIN_EPOCH,
    ORIGIN_OFFSET,
    as_sent,
    chain_in,
    life_in,
    number_in,
)
from proxy.core.keys.key_rules import KeyRule
from proxy.core.pipeline.queue_pipeline import QueuePipeline


def origin_of(copy: StoredMessage) -> tuple[int, int]:
    """Return the offset of the original message of *copy*, and the ownership period in which the
    copy was made; -1 for unknown values.
    """
    raw = (copy.taken_from or copy).raw_properties
    return _number(raw, ORIGIN_OFFSET), _number(raw, ORIGIN_EPOCH)


def is_of_its_life(copy: StoredMessage, queue: QueuePipeline) -> bool:
    """Return False if the message of *copy* is not in *queue* any more, because its topic was
    deleted and created again: another message may have its offset.
    """
    return queue.continues(life_in(copy), origin_of(copy)[0])


def parked_chain(copy: StoredMessage, rule: KeyRule) -> bytes | None:
    """Return the key under which the message of *copy* was parked. If the copy does not contain it,
    it is computed by *rule* from the original message.
    """
    key = chain_in(copy)
    return rule.chain_of(as_sent(copy)) if key is None else key


def _number(raw: bytes, name: str) -> int:
    number = number_in(property_of(raw, name))
    return -1 if number is None else number
