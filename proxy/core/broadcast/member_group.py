"""Names of the groups that the clients of a broadcast group are: one for each. Pure."""

from __future__ import annotations

import hashlib
import re

from broker_core.names import MAX_NAME_CHARS, RETRY_PREFIX, Group

#: With the prefix of its retry topic a name has to be one that brokers take.
MAX_MEMBER_CHARS = MAX_NAME_CHARS - len(RETRY_PREFIX)
_HEX = 16
#: Longest name of a broadcast group: a digest has to have room behind it.
MAX_BROADCAST_CHARS = MAX_MEMBER_CHARS - _HEX - 2

_PLAIN = re.compile(r"[a-zA-Z0-9_-]+\Z")


def member_group(group: str, client_id: str) -> Group:
    """``billing%client-1``. A client id that no broker would take as a part of a name, or that is
    too long, stands as a digest behind ``%%``, which no other client id leads to.
    """
    plain = f"{group}%{client_id}"
    if _PLAIN.match(client_id) and len(plain) <= MAX_MEMBER_CHARS:
        return Group(plain)
    digest = hashlib.sha256(client_id.encode("utf-8", "surrogatepass")).hexdigest()
    return Group(f"{group}%%{digest[:_HEX]}")
