"""How proxies tell each other which topics of a group their clients want. Pure.

Brokers list the members of a group, not who wants which of its topics. So a proxy shows a *sign*
for each topic that it wants: brokers list it as a producer under a name of group and topic, which
no producer can have, for as long as its connection and heartbeats last. Members without signs
(RocketMQ's own consumers, proxies of an earlier version) are told by their client ids.
"""

from __future__ import annotations

from broker_core.names import Group

_UNIT = "@orderlane"


def sign_of(group: str, topic: str) -> Group:
    """The sign of a proxy that wants *topic* for *group*: no legal name holds a slash."""
    return Group(f"orderlane/{group}/{topic}")


def with_signs(client_id: str) -> str:
    """*client_id* as that of a member that shows signs; the form is that of RocketMQ's units."""
    return f"{client_id}{_UNIT}"


def shows_signs(client_id: str) -> bool:
    """True if the member *client_id* shows signs of the topics that it wants."""
    return client_id.endswith(_UNIT)
