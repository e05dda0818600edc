"""A parked key in the ownership records. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker_core.names import Group, Topic

PARKED_PREFIX = "%PARK%"
#: Ends the name of a queue of parked messages in operations: ``broker-a_0p``.
TWIN_MARK = "p"
#: Actor that parks keys whose messages used up their deliveries, and that ends redrives.
FAILURE_POLICY = "failure policy"
_MAX_TEXT = 256


def plain_text(text: str) -> str:
    """Return *text*, from any source, in a form that a record can contain: short, valid Unicode."""
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode()


def parked_topic(group: Group, topic: Topic) -> Topic:
    """Return the name of the topic that holds the parked messages of (group, topic)."""
    digest = hashlib.sha1(f"{group}\0{topic}".encode(), usedforsecurity=False).hexdigest()
    return Topic(PARKED_PREFIX + digest[:16])


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """In the records of a queue: a parked key. In those of its parked twin: how far the key was
    read there.

    Copies of messages below offset ``first``, or by owners before ``epoch`` (of the queue), are
    repeats: their message has finished, or has a copy ahead. ``by`` is the actor (in the records of
    the twin: of the redrive), with a ``reason``; ``note`` is an operator's, "" for none.
    """

    first: int
    epoch: int
    redriven: bool = False
    rate: float = 0.0  # messages per second of the redrive; 0: no limit
    by: str = ""
    reason: str = ""
    note: str = ""

    def to_json(self) -> list[Any]:
        """Return the fields of a record; actor, reason and note are stored separately."""
        return [self.first, self.epoch, self.redriven, self.rate]

    @classmethod
    def from_json(cls, fields: Any) -> ParkedKey:
        """Undo ``to_json``. Raise ValueError or TypeError."""
        first, epoch, redriven, rate = fields
        if not (0 <= int(first) < 2**63 and 0 <= int(epoch) < 2**63):
            raise ValueError(f"a key is parked at {first} in epoch {epoch}: not valid offsets")
        return cls(int(first), int(epoch), bool(redriven), float(rate))


def cut_parked(parked: Mapping[bytes, ParkedKey], end: int) -> dict[bytes, ParkedKey]:
    """Adapt *parked* to a queue that lost its messages from offset *end* on: copies of the next
    messages with these offsets are not repeats.
    """
    return {key: replace(each, first=min(each.first, end)) for key, each in parked.items()}
