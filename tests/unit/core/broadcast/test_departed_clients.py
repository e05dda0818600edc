"""Clients of broadcast groups and their topics, recognized by names at brokers."""

from __future__ import annotations

import pytest

from broker_core.names import Group, Topic
from proxy.core.broadcast.departed_clients import Belongings, belongings, clients_of, records_of
from proxy.core.broadcast.member_group import member_group
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic

BILLING = Group("billing")
A, B = Group("billing%a"), Group("billing%b")
ORDERS, REFUNDS = Topic("orders"), Topic("refunds")


def test_clients_are_known_by_their_offsets_and_by_topics_of_their_name() -> None:
    digest = member_group(BILLING, "10.0.0.1@b")
    consumers = [
        (A, ORDERS),
        (A, REFUNDS),
        (A, ownership_topic(A, ORDERS)),
        (digest, ORDERS),
        (Group(f"%DLQ%{A}"), Topic(f"%DLQ%{A}")),
    ]
    topics = [ORDERS, Topic(f"%DLQ%{B}"), Topic(f"%RETRY%{A}")]
    assert clients_of(BILLING, consumers, topics) == {
        A: {ORDERS, REFUNDS},
        B: set(),
        digest: {ORDERS},
    }


@pytest.mark.parametrize("other", ["billing", "billings%a", "billing-eu%a", "eu-billing%a"])
def test_other_groups_are_none_of_its_clients(other: str) -> None:
    topics = [Topic(f"%DLQ%{other}"), Topic(f"%RETRY%{other}"), Topic("billing%a")]
    assert clients_of(BILLING, [(Group(other), ORDERS)], topics) == {}


def test_belongings_are_existing_topics_of_one_client_only() -> None:
    parked = parked_topic(A, ORDERS)
    mine = {ownership_topic(A, ORDERS), ownership_topic(A, parked), parked, Topic(f"%DLQ%{A}")}
    others = {ORDERS, ownership_topic(B, ORDERS), parked_topic(B, ORDERS), Topic(f"%DLQ%{B}")}
    assert belongings(A, {ORDERS, REFUNDS}, mine | others) == Belongings(
        records=frozenset({ownership_topic(A, ORDERS), ownership_topic(A, parked)}),
        parked=frozenset({parked}),
        letters=frozenset({Topic(f"%DLQ%{A}")}),
    )
    assert records_of(A, [ORDERS]) == {ownership_topic(A, ORDERS), ownership_topic(A, parked)}
    assert belongings(A, {ORDERS}, others) == Belongings(frozenset(), frozenset(), frozenset())
