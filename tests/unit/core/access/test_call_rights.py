"""Rights that each Thrift call needs."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.access.rights import Access, Right
from proxy.downstream.port.call_rights import acts_of
from thrift_idl import consumer, producer

G = "billing"
OURS, OTHERS = (consumer.Context(groupId=group, topic="orders", qid="b_0#1") for group in (G, "x"))
NAMELESS = consumer.Context(topic="orders", qid="b_0#1")
BATCHES = [consumer.AckBatch(context) for context in (OURS, OTHERS, NAMELESS)]
CHAIN = consumer.ConsumeResult(OURS, nextResult=consumer.ConsumeResult(OTHERS))
LEASES = [consumer.LeaseRef(context, 1) for context in (OURS, OTHERS)]
MESSAGE = producer.Message(topic="orders")
PLACES = {"orders": {"b_0": 1}}


def pull(group: str, *topics: str) -> Access:
    return Access(Right.PULL, group, topics)


def bulk(*topics: str) -> Access:
    return Access(Right.BULK, G, topics)


@pytest.mark.parametrize(
    ("method", "request_", "acts"),
    [
        ("pull", consumer.PullRequest(G), {pull(G, "a", "b")}),
        ("pull", consumer.PullRequest(G, topic="orders"), {pull(G, "orders")}),
        ("pull", consumer.PullRequest(G, topics=["c", "d"]), {pull(G, "c", "d")}),
        ("pull", consumer.PullRequest(G, topics=[]), {pull(G, "a", "b")}),
        (
            "pull",
            consumer.PullRequest(G, topic="c", acks=BATCHES),
            {pull(G, "c"), pull(G, "orders"), pull("x", "orders")},
        ),
        (
            "pull",
            consumer.PullRequest(G, topic="c", result=CHAIN),
            {pull(G, "c"), pull(G, "orders"), pull("x", "orders")},
        ),
        ("submit", CHAIN, {pull(G, "orders"), pull("x", "orders")}),
        ("settle", consumer.AckRequest(G, BATCHES), {pull(G, "orders"), pull("x", "orders")}),
        ("settle", consumer.AckRequest(G, []), set()),
        ("extend", consumer.ExtendRequest(G, LEASES, 9), {pull(G, "orders"), pull("x", "orders")}),
        ("getConsumeStats", consumer.ConsumeStatsRequest(G), {pull(G, "a", "b")}),
        ("getConsumeStats", consumer.ConsumeStatsRequest(G, "orders"), {pull(G, "orders")}),
        ("fetch", consumer.FetchRequest("c", G, ""), {bulk("a", "b")}),
        ("fetch", consumer.FetchRequest("c", G, "", PLACES), {bulk("orders")}),
        ("ack", consumer.AckResult("c", G, "", PLACES), {bulk("orders")}),
        ("ranges", consumer.RangesRequest(G, ["orders"]), {bulk("orders")}),
        ("sendSync", MESSAGE, {Access(Right.PRODUCE, None, ("orders",))}),
        ("sendAsync", MESSAGE, {Access(Right.PRODUCE, None, ("orders",))}),
        ("sendBatchSync", MESSAGE, {Access(Right.PRODUCE, None, ("orders",))}),
        (
            "sendDelaySync",
            producer.DelayMessage(topic="orders", action=1),
            {Access(Right.PRODUCE, None, ("orders",))},
        ),
    ],
)
def test_the_rights_that_a_call_needs(method: str, request_: Any, acts: set[Access]) -> None:
    assert set(acts_of(method, request_, lambda _group: ["a", "b"])) == acts
