"""Names of the member groups of a broadcast group: one for each client. Pure."""

from __future__ import annotations

import hashlib
import re

from broker_core.names import MAX_NAME_CHARS, RETRY_PREFIX, Group

#: Longest name for which brokers accept the retry topic.
MAX_MEMBER_CHARS = MAX_NAME_CHARS - len(RETRY_PREFIX)
_HEX = 16
#: Longest name of a broadcast group: leaves room for a digest.
MAX_BROADCAST_CHARS = MAX_MEMBER_CHARS - _HEX - 2

_PLAIN = re.compile(r"[a-zA-Z0-9_-]+\Z")


def member_group(group: str, client_id: str) -> Group:
    """Return a name such as ``billing%client-1``. A client id that brokers would refuse in a name,
    or that is too long, is replaced by a digest after ``%%``, which cannot result from another id.
    """
    plain = f"{group}%{client_id}"
    if _PLAIN.match(client_id) and len(plain) <= MAX_MEMBER_CHARS:
        return Group(plain)
    digest = hashlib.sha256(client_id.encode("utf-8", "surrogatepass")).hexdigest()
    return Group(f"{group}%%{digest[:_HEX]}")
