"""Conversion between Thrift structs and the core's types."""

from __future__ import annotations

from typing import Any

import pytest
from thrift.protocol import fastbinary

from broker_core.errors import BrokerError, ConnectionLost, RequestTimeout
from proxy.core.group.group_buffer import Batch
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.verdicts import Nack
from proxy.downstream.port.interpretation import interpret
from proxy.downstream.port.requests import (
    MAX_VERDICTS,
    linger_ms,
    links_of,
    nacks_of,
    pull_response,
    refusal,
    refuse_floods,
    user_properties,
    uses_our_fields,
    wish_of,
)
from proxy.errors import OrderlaneError, Refused, Unavailable, UnknownName
from proxy.lane.topic_rules import rules_of
from proxy.settings.groups import TopicSettings
from testkit.lanes import group_settings
from testkit.messages import keyed
from testkit.pipelines import lease, pipeline, rules
from testkit.thrift_client import chain, ddmq_pull, link, our_pull
from thrift_idl import consumer, consumer_service

CONTEXT = consumer.Context("billing", "orders", "broker-a_0#1")
OURS: dict[str, Any] = {
    "acks": [],
    "requestId": "",
    "clientId": "c",
    "maxRun": 1,
    "manyQueues": False,
    "token": "",
    "topics": [],
    "figures": consumer.ClientFigures(handlers=1, prefetch=1),
}


def wish(request: Any, *, ours: bool = True, **settings: Any) -> Any:
    group = group_settings(**settings)
    meaning = interpret("pull", consumer_service.pull_args(request))
    return wish_of(
        request,
        meaning,
        group=group,
        delivers=group.delivers,
        ours=ours,
        connection=5,
        max_bytes=9,
    )


# ---- kinds of clients -----------------------------------------------------------------------


def test_a_request_is_ours_by_any_field_that_ddmq_does_not_have() -> None:
    spec = [entry for entry in consumer.PullRequest.thrift_spec if entry and entry[0] >= 70]
    assert {entry[2] for entry in spec} == OURS.keys()
    assert not uses_our_fields(ddmq_pull("g", topic="t", result=link(CONTEXT), version="v"))
    for name, value in OURS.items():
        assert uses_our_fields(ddmq_pull("g", **{name: value}))


@pytest.mark.parametrize(
    ("asked", "for_ours", "for_ddmq"),
    [
        (None, 20, 20),
        (-1, 20, 20),
        (19, 20, 20),
        (1500, 1500, 1500),
        (1501, 1501, 1500),
        (30_000, 30_000, 1500),
        (2**31 - 1, 30_000, 1500),
    ],
)
def test_a_pull_waits_within_bounds(asked: int | None, for_ours: int, for_ddmq: int) -> None:
    request = ddmq_pull("g", linger_ms=asked)
    assert linger_ms(request, ours=True) == for_ours
    assert linger_ms(request, ours=False) == for_ddmq


@pytest.mark.parametrize(("asked", "wanted"), [(None, 1), (0, 1), (1, 1), (2, 2), (10**6, 10**6)])
def test_runs_are_given_to_clients_that_ask(asked: int | None, wanted: int) -> None:
    assert wish(our_pull("g", maxRun=asked)).max_run == wanted


def test_a_wish_has_the_groups_batch_unless_the_client_names_one() -> None:
    many = {"topics": ("a", "b"), "max_pull_batch": 17}
    assert wish(our_pull("g"), **many).max_jobs == 17
    assert wish(our_pull("g", topics=["a"], maxBatchSize=-3), **many).max_jobs == 17
    assert wish(our_pull("g", maxBatchSize=3)).max_jobs == 3
    assert wish(ddmq_pull("g"), ours=False).max_jobs == 8
    assert wish(ddmq_pull("g", maxBatchSize=99), ours=False).max_jobs == 99


def test_a_wish_names_its_holder() -> None:
    named = wish(our_pull("g", clientId="x" * 999, manyQueues=True, topics=["orders"]))
    assert (named.holder.connection, named.holder.client) == (5, "x" * 256)
    assert (named.many_queues, named.topics, named.max_bytes) == (True, {"orders"}, 9)
    unnamed = wish(ddmq_pull("g"), ours=False)
    assert (unnamed.holder.client, unnamed.many_queues, unnamed.topics) == (
        "connection-5",
        False,
        None,
    )


# ---- verdicts -----------------------------------------------------------------------------------


def test_a_chain_is_followed_link_by_link() -> None:
    links = [link(CONTEXT, success=[1], failed=[2]), consumer.ConsumeResult(), link(CONTEXT)]
    assert [id(each) for each in links_of(chain(*links))] == [id(each) for each in links]
    assert list(links_of(None)) == []


def test_nacks_are_limited_and_have_defaults() -> None:
    nacks = [
        consumer.Nack(leaseId=3, retryAfterMs=-1, reject=True, reason="r" * 999),
        consumer.Nack(leaseId=4),
        consumer.Nack(),
    ]
    assert nacks_of(nacks) == [
        Nack(LeaseId(3), retry_after_ms=0, reject=True, reason="r" * 256),
        Nack(LeaseId(4)),
        Nack(LeaseId(0)),
    ]
    assert nacks_of(None) == []


@pytest.mark.parametrize("encode", [fastbinary.encode_compact, fastbinary.encode_binary])
@pytest.mark.parametrize(
    "verdicts",
    [
        lambda count: {"acks": [consumer.AckBatch(acked=[0] * count)]},
        lambda count: {"acks": [consumer.AckBatch(nacked=[consumer.Nack()] * count)]},
        lambda count: {"acks": [consumer.AckBatch(released=[0] * count)]},
        lambda count: {"acks": [consumer.AckBatch()] * count},
        lambda count: {"result": consumer.ConsumeResult(successOffsets=[0] * count)},
        lambda count: {"result": consumer.ConsumeResult(failOffsets=[0] * count)},
    ],
)
def test_a_verdict_has_a_byte_at_least(encode: Any, verdicts: Any) -> None:
    """So verdicts are counted only in requests of more bytes than the limit."""
    request = consumer.PullRequest(**verdicts(5_000))
    encoded = encode(request, [consumer.PullRequest, request.thrift_spec])
    assert len(encoded) >= 5_000
    refuse_floods(result=request.result, acks=request.acks)
    many = consumer.PullRequest(**verdicts(MAX_VERDICTS + 1))
    with pytest.raises(Refused, match="verdicts in one request"):
        refuse_floods(result=many.result, acks=many.acks)


# ---- answers ------------------------------------------------------------------------------------


def answer(*, ours: bool, queues: int = 1) -> Any:
    batches = []
    for queue_id in range(queues):
        owned = pipeline(rules("KEY"), epoch=queue_id, messages=[keyed(0, "k"), keyed(1, "l")])
        batches.append(Batch(owned, lease(owned)))
    return pull_response(batches, group="g", ours=ours, home="h:1")


@pytest.mark.parametrize("ours", [True, False])
def test_all_clients_get_the_body_that_a_transform_made(ours: bool) -> None:
    """DDMQ gives its clients the original body, regardless of transforms."""
    topic = TopicSettings.model_validate(
        {"name": "orders", "order_key": "KEY", "actions": [{"transform": {"to": "[key, text]"}}]}
    )
    owned = pipeline(rules_of(topic), messages=[keyed(0, "k")])
    response = pull_response([Batch(owned, lease(owned))], group="g", ours=ours, home="h:1")
    assert [each.value for each in response.messages] == [b'["k","xyz"]']


def test_a_client_of_ours_gets_leases_and_ddmqs_gets_none() -> None:
    ours, ddmqs = answer(ours=True), answer(ours=False)
    assert (ours.leaseMs, ours.home, [each.leaseId for each in ours.messages]) == (
        5000,
        "h:1",
        [1, 2],
    )
    assert [each.orderKey for each in ours.messages] == [b"k", b"l"]
    assert (ddmqs.leaseMs, ddmqs.home) == (None, None)
    for each in ddmqs.messages:
        assert (each.leaseId, each.attempt, each.bornAtMs, each.orderKey, each.messageId) == (
            (None,) * 5
        )


def test_further_queues_hang_under_the_first() -> None:
    response = answer(ours=True, queues=3)
    assert response.context.qid.endswith("#0")
    assert [each.context.qid[-2:] for each in response.more] == ["#1", "#2"]
    assert [each.more for each in response.more] == [None, None]


def test_the_brokers_own_properties_are_left_out() -> None:
    assert user_properties({}) is None
    assert user_properties({"KEYS": "k", "TAGS": "t"}) is None
    assert user_properties({"UNIQ_KEY": "u", "colour": "red"}) == {"colour": "red"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("no"), 400),
        (OrderlaneError("no"), 400),
        (UnknownName("who"), 404),
        (BrokerError(17, "no topic"), 404),
        (BrokerError(1, "broken"), 503),
        (ConnectionLost("gone"), 503),
        (RequestTimeout("late"), 503),
        (Unavailable("not read yet"), 503),
    ],
)
def test_a_refusal_says_whether_another_try_may_help(error: Exception, code: int) -> None:
    """400 and 404: no; 500 and above: yes."""
    told = refusal(error)
    assert (told.code, told.message) == (code, str(error))
