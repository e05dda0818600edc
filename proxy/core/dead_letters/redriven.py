"""Marks of a message that is a dead letter sent back. Pure.

The marks are properties for readers of the topic: RocketMQ's consumers, filters, and the next dead
letter of that message. The gateway hides them from handlers. The new id ends with a check value,
which distinguishes marks from properties that a producer set under the same names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from broker_core.remoting.message import UNIQ_KEY

#: Number of redrives, group of the dead letters (the last time), and id before the first redrive.
REDRIVES, REDRIVEN_GROUP, FIRST_ID = (
    "ORDERLANE_REDRIVES",
    "ORDERLANE_REDRIVEN_GROUP",
    "ORDERLANE_FIRST_ID",
)
MARKS = frozenset((REDRIVES, REDRIVEN_GROUP, FIRST_ID))
_CHECK_DIGITS = 4


def marked(begin: str, *, redrives: int, group: str, first_id: str) -> dict[str, str]:
    """Return the marks and the new id, which is *begin* with the check value."""
    made = {REDRIVES: str(redrives), REDRIVEN_GROUP: group, FIRST_ID: first_id}
    return {**made, UNIQ_KEY: begin + _check(begin, made)}


def is_marked(properties: Mapping[str, str]) -> bool:
    """Return True if *properties* have marks made by a redrive."""
    if not properties.keys() >= MARKS:
        return False
    name = properties.get(UNIQ_KEY, "")
    return name[-_CHECK_DIGITS:] == _check(name[:-_CHECK_DIGITS], properties)


def _check(begin: str, marks: Mapping[str, str]) -> str:
    text = "\0".join([begin, *(marks[name] for name in (REDRIVES, REDRIVEN_GROUP, FIRST_ID))])
    digest = hashlib.sha1(text.encode("utf-8", "backslashreplace"), usedforsecurity=False)
    return digest.hexdigest()[:_CHECK_DIGITS].upper()
