"""The parts of all groups on this proxy that own queues, by group."""

from __future__ import annotations

from typing import NoReturn

from broker_core.names import Group
from proxy.errors import UnknownName
from proxy.upstream.ownership.group_ownership import GroupOwnership


class Ownerships(dict[Group, GroupOwnership]):
    """Ownership of queues by group. ``[]`` raises UnknownName for a group that is not here: it may
    have been removed while its caller waited for a broker.
    """

    def __missing__(self, group: Group) -> NoReturn:
        raise UnknownName(f"there is no group {group!r} here any more: it was removed")
