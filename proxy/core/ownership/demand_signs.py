"""Signs by which proxies announce the topics of a group that their clients want. Pure.

Brokers list the members of a group, but not which of its topics each wants. So a proxy shows a
*sign* for each topic that it wants: brokers list it as a producer under a name of group and topic,
which no producer can have, for as long as its connection and heartbeats last. Members without signs
(RocketMQ's own consumers, proxies of an earlier version) are recognized by their client ids.
"""

from __future__ import annotations

from broker_core.names import Group

_UNIT = "@orderlane"


def sign_of(group: str, topic: str) -> Group:
    """Return the sign of a proxy that wants *topic* for *group*: no legal name contains a slash."""
    return Group(f"orderlane/{group}/{topic}")


def with_signs(client_id: str) -> str:
    """Return *client_id* marked as showing signs, in the form of RocketMQ's unit names."""
    return f"{client_id}{_UNIT}"


def shows_signs(client_id: str) -> bool:
    """Return True if the member *client_id* shows signs of the topics that it wants."""
    return client_id.endswith(_UNIT)
