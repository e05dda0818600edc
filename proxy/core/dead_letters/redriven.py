"""What says of a message that it is a dead letter sent back. Pure.

The marks are properties, for whoever looks at the topic: consumers of RocketMQ, filters, and the
next dead letter of that message. Handlers of the gateway do not see them: to them it is the message
as it was sent. The end of its new id is a check, which tells marks from what a producer wrote under
the same names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from broker_core.remoting.message import UNIQ_KEY

#: How often it was redriven, from the dead letters of which group (the last time), and the id that
#: it had before the first time.
REDRIVES, REDRIVEN_GROUP, FIRST_ID = (
    "ORDERLANE_REDRIVES",
    "ORDERLANE_REDRIVEN_GROUP",
    "ORDERLANE_FIRST_ID",
)
MARKS = frozenset((REDRIVES, REDRIVEN_GROUP, FIRST_ID))
_CHECK_DIGITS = 4


def marked(begin: str, *, redrives: int, group: str, first_id: str) -> dict[str, str]:
    """The marks, and the new id, which has *begin* and the check."""
    made = {REDRIVES: str(redrives), REDRIVEN_GROUP: group, FIRST_ID: first_id}
    return {**made, UNIQ_KEY: begin + _check(begin, made)}


def is_marked(properties: Mapping[str, str]) -> bool:
    """True if *properties* have marks that a redrive made."""
    if not properties.keys() >= MARKS:
        return False
    name = properties.get(UNIQ_KEY, "")
    return name[-_CHECK_DIGITS:] == _check(name[:-_CHECK_DIGITS], properties)


def _check(begin: str, marks: Mapping[str, str]) -> str:
    text = "\0".join([begin, *(marks[name] for name in (REDRIVES, REDRIVEN_GROUP, FIRST_ID))])
    digest = hashlib.sha1(text.encode("utf-8", "backslashreplace"), usedforsecurity=False)
    return digest.hexdigest()[:_CHECK_DIGITS].upper()
