"""Who takes part in a group, and wants which of its topics, as brokers see it now."""

from __future__ import annotations

from broker_core.client import BrokerClient
from broker_core.names import Group, Topic
from proxy.core.demand_signs import shows_signs, sign_of
from proxy.core.group_share import Present


async def present(client: BrokerClient, group: Group, topic: Topic) -> Present:
    """Who is there for *topic*. Raises RemotingError.

    A member alone is not asked what it wants: nobody else does.
    """
    members = await client.consumer_ids(group, topic)
    if set(members) <= {client.client_id}:
        return Present(members)
    signs = set(await client.producer_ids(sign_of(group, topic), topic))
    strangers = {each for each in members if each != client.client_id and not shows_signs(each)}
    return Present(members, [each for each in members if each in signs], strangers)
