"""What ownership records say of a key whose messages go to the parked topic. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker_core.names import Group, Topic

PARKED_PREFIX = "%PARK%"
#: Who parks keys whose messages used their hand-outs up, and who ends redrives.
FAILURE_POLICY = "failure policy"
_MAX_TEXT = 256


def plain_text(text: str) -> str:
    """*text*, which came from anywhere, as a record can carry it: short, and proper Unicode."""
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode()


def parked_topic(group: Group, topic: Topic) -> Topic:
    """Name of the topic that holds the parked messages of (group, topic)."""
    digest = hashlib.sha1(f"{group}\0{topic}".encode(), usedforsecurity=False).hexdigest()
    return Topic(PARKED_PREFIX + digest[:16])


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """In the records of a queue: a key that is parked. In those of its parked twin: what was read
    of the key there.

    Copies of messages below offset ``first``, or by owners before ``epoch`` (of the queue), are
    repeats: their message has finished, or has a copy ahead. ``by`` asked for it (in the records of
    the twin: for the redrive), for that ``reason``; ``note`` is an operator's, "" for none.
    """

    first: int
    epoch: int
    redriven: bool = False
    rate: float = 0.0  # messages a second of the redrive; 0: as fast as clients take them
    by: str = ""
    reason: str = ""
    note: str = ""

    def to_json(self) -> list[Any]:
        """As it stands in a record, but for who asked, why, and the note: these stand beside it."""
        return [self.first, self.epoch, self.redriven, self.rate]

    @classmethod
    def from_json(cls, fields: Any) -> ParkedKey:
        """Undo ``to_json``. Raises ValueError or TypeError."""
        first, epoch, redriven, rate = fields
        if not (0 <= int(first) < 2**63 and 0 <= int(epoch) < 2**63):
            raise ValueError(f"a key parked at {first} in epoch {epoch}: no offsets are such")
        return cls(int(first), int(epoch), bool(redriven), float(rate))


def cut_parked(parked: Mapping[bytes, ParkedKey], end: int) -> dict[bytes, ParkedKey]:
    """*parked*, of a queue whose messages from offset *end* on are gone: copies of those that get
    these offsets next are no repeats.
    """
    return {key: replace(each, first=min(each.first, end)) for key, each in parked.items()}
