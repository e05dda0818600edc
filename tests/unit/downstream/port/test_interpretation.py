"""The interpretation of Thrift calls that authorization and service share."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from broker_core.remoting.half_place import HalfPlace
from broker_core.remoting.recall_handle import RecallHandle
from proxy.core.access.rights import Access, Right
from proxy.downstream.port.interpretation import Interpretation, interpret
from proxy.errors import Refused
from testkit.thrift_client import structs
from thrift_idl import consumer, consumer_service, producer, producer_service

G = "billing"
OURS, OTHERS = (consumer.Context(groupId=group, topic="orders", qid="b_0#1") for group in (G, "x"))
NAMELESS = consumer.Context(topic="orders", qid="b_0#1")
TOPICLESS = consumer.Context(groupId=G)
EMPTY = consumer.Context(groupId="", topic="", qid="")
BATCHES = [consumer.AckBatch(each) for each in (OURS, OTHERS, NAMELESS, TOPICLESS, EMPTY)]
CHAIN = consumer.ConsumeResult(OURS, nextResult=consumer.ConsumeResult(OTHERS))
LEASES = [consumer.LeaseRef(context, 1) for context in (OURS, OTHERS, EMPTY)]
MESSAGE = producer.Message(topic="orders")
PLACES = {"orders": {"b_0": 1}}
HANDLE = RecallHandle("orders", "broker-a", 1, "id").to_text()
TRANSACTION = HalfPlace("broker-a", "orders", "tx", 1, 2, "id").to_text()
CANCELLED = producer.DelayMessage(topic="other", action=2, uniqDelayMsgId=HANDLE)


def pull(group: str, *topics: str) -> Access:
    return Access(Right.PULL, group, topics)


def bulk(*topics: str) -> Access:
    return Access(Right.BULK, G, topics)


def of_producers(*topics: str) -> Access:
    return Access(Right.PRODUCE, "tx", topics)


VERDICTS = {pull(G, "orders"), pull("x", "orders")}

#: Method, arguments, rights apart from sends, and topics of sends. Of each method at least one.
CALLS: list[tuple[str, list[Any], set[Access], tuple[str, ...]]] = [
    ("pull", [consumer.PullRequest(G)], {pull(G, "a", "b")}, ()),
    ("pull", [consumer.PullRequest(G, topic="orders")], {pull(G, "orders")}, ()),
    ("pull", [consumer.PullRequest(G, topics=["c", "d", "c"])], {pull(G, "c", "d")}, ()),
    ("pull", [consumer.PullRequest(G, topics=[])], {pull(G, "a", "b")}, ()),
    ("pull", [consumer.PullRequest(G, topic="c", acks=BATCHES)], {pull(G, "c"), *VERDICTS}, ()),
    ("pull", [consumer.PullRequest(G, topic="c", result=CHAIN)], {pull(G, "c"), *VERDICTS}, ()),
    ("submit", [CHAIN], VERDICTS, ()),
    ("settle", [consumer.AckRequest(G, BATCHES)], VERDICTS, ()),
    ("settle", [consumer.AckRequest(G, [])], set(), ()),
    ("extend", [consumer.ExtendRequest(G, LEASES, 9)], VERDICTS, ()),
    ("getConsumeStats", [consumer.ConsumeStatsRequest(G)], {pull(G, "a", "b")}, ()),
    ("getConsumeStats", [consumer.ConsumeStatsRequest(G, "orders")], {pull(G, "orders")}, ()),
    ("fetch", [consumer.FetchRequest("c", G, "")], {bulk("a", "b")}, ()),
    ("fetch", [consumer.FetchRequest("c", G, "", PLACES)], {bulk("orders")}, ()),
    ("ack", [consumer.AckResult("c", G, "", PLACES)], {bulk("orders")}, ()),
    ("ranges", [consumer.RangesRequest(G, ["orders"])], {bulk("orders")}, ()),
    ("ranges", [consumer.RangesRequest(G, [])], {bulk("a", "b")}, ()),
    ("topics", [consumer.TopicsRequest(G)], set(), ()),
    ("report", [consumer.ProgressReport(G, "c", {})], {bulk("a", "b")}, ()),
    ("report", [consumer.ProgressReport(G, "c", PLACES)], {bulk("orders")}, ()),
    (
        "report",
        [consumer.ProgressReport(G, "c", PLACES, {"x": 1}, {"y": 1}, {"z": 1})],
        {bulk("orders", "x", "y", "z")},
        (),
    ),
    ("sendSync", [MESSAGE, 1], set(), ("orders",)),
    ("sendAsync", [MESSAGE], set(), ("orders",)),
    ("sendBatchSync", [[MESSAGE, producer.Message(topic="x"), None]], set(), ("orders", "x", "")),
    ("sendEncoded", [producer.EncodedBatch("orders", "q", 1, b"b")], set(), ("orders",)),
    ("sendDelaySync", [producer.DelayMessage(topic="orders", action=1), 1], set(), ("orders",)),
    ("sendDelaySync", [CANCELLED, 1], set(), ("orders",)),
    ("prepareTransaction", [producer.PrepareRequest(MESSAGE, "tx")], {of_producers("orders")}, ()),
    ("endTransaction", [producer.EndRequest(TRANSACTION, 1)], {of_producers("orders")}, ()),
    ("endTransaction", [producer.EndRequest("no transaction", 1)], set(), ()),
    (
        "transactionChecks",
        [producer.ChecksRequest("tx", ["a", "b"])],
        {of_producers("a", "b")},
        (),
    ),
    ("writableQueues", [producer.QueuesRequest("orders")], set(), ("orders",)),
]


def meaning_of(method: str, values: list[Any]) -> Interpretation:
    return interpret(method, structs(method)[0](*values))


@pytest.mark.parametrize(("method", "values", "accesses", "sends"), CALLS)
def test_a_call_means_the_rights_that_it_needs(
    method: str, values: list[Any], accesses: set[Access], sends: tuple[str, ...]
) -> None:
    meaning = meaning_of(method, values).with_granted(lambda _group: ["b", "a"])
    assert set(meaning.accesses()) == accesses
    assert meaning.sends == sends


def test_every_method_of_the_services_has_an_interpretation_and_a_case_here() -> None:
    """A new method without an interpretation fails here, and so does one without a case."""
    methods = {
        name
        for service in (consumer_service.Iface, producer_service.Iface)
        for name, _ in inspect.getmembers(service, inspect.isfunction)
    }
    assert {method for method, *_ in CALLS} == methods
    for method in methods:
        interpret(method, structs(method)[0]())  # all requests are absent


def contexts(**fields: str | None) -> list[tuple[str, list[Any]]]:
    context = consumer.Context(**{"groupId": G, "topic": "orders", "qid": "b_0#1", **fields})
    batch, link = consumer.AckBatch(context), consumer.ConsumeResult(context)
    return [
        ("pull", [consumer.PullRequest(G, acks=[consumer.AckBatch(OURS), batch])]),
        ("pull", [consumer.PullRequest(G, result=consumer.ConsumeResult(OURS, nextResult=link))]),
        ("submit", [link]),
        ("settle", [consumer.AckRequest(G, [batch])]),
        ("extend", [consumer.ExtendRequest(G, [consumer.LeaseRef(context, 1)], 9)]),
    ]


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("pull", [consumer.PullRequest(G, topic="")]),
        ("pull", [consumer.PullRequest(G, topics=[""])]),
        ("pull", [consumer.PullRequest(G, topics=["orders", ""])]),
        ("pull", [consumer.PullRequest(G, topic="", topics=["orders"])]),
        ("pull", [consumer.PullRequest(G, topic="a", topics=[])]),
        ("getConsumeStats", [consumer.ConsumeStatsRequest(G, "")]),
        ("fetch", [consumer.FetchRequest("c", G, "", {"": {"b_0": 1}})]),
        ("fetch", [consumer.FetchRequest("c", G, "", {"orders": {"": 1}})]),
        ("ack", [consumer.AckResult("c", G, "", {**PLACES, "": {}})]),
        ("ranges", [consumer.RangesRequest(G, ["orders", ""])]),
        ("topics", [consumer.TopicsRequest("")]),
        ("report", [consumer.ProgressReport(G, "c", {**PLACES, "": {}})]),
        ("report", [consumer.ProgressReport(G, "c", {"orders": {"": 1}})]),
        ("report", [consumer.ProgressReport(G, "c", PLACES, {"": 1})]),
        *contexts(groupId=""),
        *contexts(topic=""),
        *contexts(qid=""),
    ],
)
def test_an_empty_name_is_refused_and_never_a_wildcard(method: str, values: list[Any]) -> None:
    with pytest.raises(Refused):
        meaning_of(method, values)


def test_topics_added_later_are_not_part_of_a_call_that_named_none() -> None:
    meaning = meaning_of("pull", [consumer.PullRequest(G)]).with_granted(lambda _group: ["orders"])
    assert meaning.serves("orders")
    assert not meaning.serves("%DLQ%billing")


def test_without_rules_a_call_that_names_no_topic_concerns_all() -> None:
    assert meaning_of("pull", [consumer.PullRequest(G)]).serves("anything")
