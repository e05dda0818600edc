"""Limits on the members of groups: per group, in all, and on the topics that one member names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.producers import Producers
from broker_core.broker.limits import NO_LIMIT, Limit
from broker_core.errors import BrokerError
from broker_core.names import Group
from broker_core.remoting.bodies import ConsumerData
from broker_core.remoting_channel import RemotingChannel


@dataclass(frozen=True, slots=True)
class MemberLimits:
    """Decides which memberships of a heartbeat count. A client that is a member stays one.

    If it names too many topics, the subscriptions of its group stay as they are.
    """

    #: Members of one group, consumers or producers.
    per_group: Limit = NO_LIMIT
    #: Memberships in all groups, of consumers and of producers each.
    in_all: Limit = NO_LIMIT
    #: Topics that one member subscribes in one group.
    topics: Limit = NO_LIMIT

    def consumers(
        self,
        groups: Groups[RemotingChannel],
        client_id: str,
        wanted: Iterable[ConsumerData],
    ) -> tuple[list[ConsumerData], BrokerError | None]:
        """Return the memberships that count, and the reason why another one does not."""
        admitted: list[ConsumerData] = []
        problem: BrokerError | None = None
        more = 0
        for data in wanted:
            client, count = f"client {client_id[:200]!r}", len(data.subscriptions)
            refused = f"{client} does not become a member of group {data.group}"
            is_member = groups.has_member(data.group, client_id)
            if not self.topics.allows(count):
                if is_member:
                    subscribed = groups.subscriptions(data.group)
                    admitted.append(replace(data, subscriptions=subscribed))
                    refused = f"{client} subscribes the same topics of group {data.group} as before"
                problem = self.topics.refusal(refused=refused, held=f"it names {count} topics")
                continue
            if is_member:
                admitted.append(data)
                continue
            held = groups.count(data.group)
            if not self.per_group.allows(held + 1):
                problem = self.per_group.refusal(
                    refused=refused, held=f"the group has {held} members"
                )
            elif not self.in_all.allows(groups.memberships + more + 1):
                problem = self.in_all.refusal(
                    refused=refused, held=f"this broker has {groups.memberships} members"
                )
            else:
                more += 1
                admitted.append(data)
        return admitted, problem

    def producers(
        self, producers: Producers[RemotingChannel], client_id: str, wanted: Iterable[Group]
    ) -> tuple[list[Group], BrokerError | None]:
        """Return the producer groups that count, and the reason why another one does not."""
        admitted: list[Group] = []
        problem: BrokerError | None = None
        more = 0
        for group in wanted:
            clients = producers.clients(group)
            if client_id in clients:
                admitted.append(group)
                continue
            refused = f"client {client_id[:200]!r} does not become a producer of {group[:200]!r}"
            if not self.per_group.allows(len(clients) + 1):
                problem = self.per_group.refusal(
                    refused=refused, held=f"the group has {len(clients)} members"
                )
            elif not self.in_all.allows(producers.memberships + more + 1):
                problem = self.in_all.refusal(
                    refused=refused, held=f"this broker has {producers.memberships} producers"
                )
            else:
                more += 1
                admitted.append(group)
        return admitted, problem
