"""Rules for the names of consumer groups, including the names derived from them. Pure.

The topics ``%PARK%…`` and ``%OWN%…`` contain a digest of group and topic, so they accept any name.
Dead letters go to ``%DLQ%group``, and their redrive keeps its progress in a consumer group of that
name: this limits the length.
"""

from __future__ import annotations

from broker_core.names import (
    DEAD_LETTER_PREFIX,
    INTERNAL_PREFIX,
    MAX_NAME_CHARS,
    check_name,
)

#: Longest group name for which brokers accept the dead-letter topic.
MAX_GROUP_CHARS = MAX_NAME_CHARS - len(DEAD_LETTER_PREFIX)
_SHOWN = 24


def check_group(name: str) -> str:
    """Return *name*. Raise ValueError, in one sentence, if the gateway cannot use it as a group."""
    check_name("group", name)
    if len(name) > MAX_GROUP_CHARS:
        raise ValueError(
            f"group {name[:_SHOWN]!r}… has a name of {len(name)} characters: at most"
            f" {MAX_GROUP_CHARS} are allowed, because its dead-letter topic is"
            f" {DEAD_LETTER_PREFIX} followed by that name"
        )
    if name.startswith(INTERNAL_PREFIX):
        raise ValueError(
            f"group {name!r} has a name that begins with {INTERNAL_PREFIX!r}, which is reserved"
            " for brokers and gateways: choose another name"
        )
    return name
