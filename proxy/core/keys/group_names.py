"""Which names a group may have, with all that is derived from them. Pure.

Of a group and a topic are derived the topics ``%PARK%…`` and ``%OWN%…``, which have digests, so any
name does. The dead letters stand in ``%DLQ%group``, and their redrive has its progress in a group
of that name.
"""

from __future__ import annotations

from broker_core.names import (
    DEAD_LETTER_PREFIX,
    INTERNAL_PREFIX,
    MAX_NAME_CHARS,
    check_name,
)

#: With the prefix of its dead letters a name has to be one that brokers take.
MAX_GROUP_CHARS = MAX_NAME_CHARS - len(DEAD_LETTER_PREFIX)
_SHOWN = 24


def check_group(name: str) -> str:
    """Return *name*; raises ValueError, in a sentence, if it can be no group's of the gateway."""
    check_name("group", name)
    if len(name) > MAX_GROUP_CHARS:
        raise ValueError(
            f"group {name[:_SHOWN]!r}… has a name of {len(name)} characters: at most"
            f" {MAX_GROUP_CHARS} are taken, for its dead letters stand in the topic"
            f" {DEAD_LETTER_PREFIX} with that name behind it"
        )
    if name.startswith(INTERNAL_PREFIX):
        raise ValueError(
            f"group {name!r} has a name that begins with {INTERNAL_PREFIX!r}: such are of brokers"
            " and gateways, choose another"
        )
    return name
