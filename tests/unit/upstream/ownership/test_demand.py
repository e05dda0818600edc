"""The members of a group, and their demand for topics."""

from __future__ import annotations

from typing import cast

from broker_core.client import BrokerClient
from broker_core.names import Group, Topic
from proxy.core.ownership.demand_signs import sign_of, with_signs
from proxy.upstream.ownership.demand import GroupMembers

GROUP = Group("billing")
ORDERS, PAYMENTS, ARCHIVE = Topic("orders"), Topic("payments"), Topic("archive")
US, OTHER, STRANGER = with_signs("proxy-0"), with_signs("proxy-1"), "a-java-consumer"


class Brokers:
    """Brokers that list *members*, and count the requests for them."""

    client_id = US

    def __init__(self, members: list[str], **signs: list[str]) -> None:
        self._members = members
        self._signs = {sign_of(GROUP, topic): shown for topic, shown in signs.items()}
        self.member_requests = 0
        self.sign_requests = 0

    async def broker_names(self, topic: Topic) -> list[str]:
        return ["broker-b"] if topic == ARCHIVE else ["broker-a"]

    async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
        assert group == GROUP
        self.member_requests += 1
        return self._members

    async def producer_ids(self, group: Group, topic: Topic) -> list[str]:
        self.sign_requests += 1
        return self._signs[group]


def members_at(brokers: Brokers) -> GroupMembers:
    return GroupMembers(cast("BrokerClient", brokers), GROUP)


async def test_topics_on_the_same_brokers_share_one_list_of_members() -> None:
    brokers = Brokers([US, OTHER], orders=[US], payments=[OTHER], archive=[])
    members = members_at(brokers)
    assert (await members.wanting(ORDERS)).wanting == [US]
    assert (await members.wanting(PAYMENTS)).wanting == [OTHER]
    assert brokers.member_requests == 1
    assert (await members.wanting(ARCHIVE)).wanting == []
    assert brokers.member_requests == 2


async def test_each_look_asks_for_the_members_again() -> None:
    brokers = Brokers([US, OTHER], orders=[US])
    for _ in range(2):
        await members_at(brokers).wanting(ORDERS)
    assert brokers.member_requests == 2


async def test_the_only_member_does_not_ask_for_signs() -> None:
    brokers = Brokers([US])
    assert (await members_at(brokers).wanting(ORDERS)).wanting is None
    assert brokers.sign_requests == 0


async def test_a_member_without_signs_is_a_stranger() -> None:
    brokers = Brokers([US, STRANGER], orders=[US])
    present = await members_at(brokers).wanting(ORDERS)
    assert present.strangers == {STRANGER: True}
    assert present.wanting == [US]
