"""Which batches of the Python producers go encoded, and what the broker receives then."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.remoting.message_batch import decode_batch, encode_batch
from proxy.downstream.encoded_messages import check_encoded
from proxy.downstream.outgoing import IllegalMessage, outbound
from thin_client.delivery import Delivery, Outgoing, Stamp, deliveries
from thin_client.encoded_message import encoded
from thin_client.encoded_requests import LEAST_ENCODED, EncodedRequests
from thin_client.errors import ConnectionLost, ProxyFault, SendFailed
from thin_client.key_hash import key_hash
from thrift_idl import producer

S = 1_000_000_000
STAMP = Stamp("secret", lambda properties: None, lambda: 0.0)
QUEUES = ["broker-a_0", "broker-a_1", "broker-b_0"]


def request_of(*messages: Outgoing) -> Delivery:
    (request,) = deliveries(messages, deadline_ns=10 * S, stamp=STAMP)
    return request


def knowing(*qids: str) -> EncodedRequests:
    known = EncodedRequests()
    known.told("orders", producer.WritableQueues(code=0, qids=list(qids)), 0)
    return known


def message_of(**fields: Any) -> producer.Message:
    (message,) = request_of(Outgoing("orders", **{"body": b"1", **fields})).messages
    assert isinstance(message, producer.Message)
    return message


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"key": "k", "tag": "t", "properties": {"b": "2", "a": "1"}},
        {"key": " k 1\t", "sharding_key": "s"},
        {"key": "  "},
        {"key": "", "tag": ""},
        {"properties": {"UNIQ_KEY": "MINE", "Größe": "1 m", "tombstone": "true"}},
        {"body": bytes(range(256)) * 300},
        {"body": "Grüße", "key": "\U0001f600"},
        {"properties": {"long": "x" * 32_000}},
    ],
)
def test_the_broker_receives_what_it_receives_after_send_sync(fields: dict[str, Any]) -> None:
    message = message_of(**fields)
    entry = encoded(message)
    assert entry is not None
    sent = outbound(message, max_body_bytes=4_000_000)
    assert entry == encode_batch([sent.message])
    check_encoded(entry, count=1, max_body_bytes=4_000_000)


@pytest.mark.parametrize(
    "fields",
    [
        {"body": b""},
        {"key": "a\x01b"},
        {"tag": "a\x02"},
        {"properties": {"a": "1\x02KEYS\x01k"}},
        {"properties": {"KEYS": "k"}},
        {"properties": {"a": ""}},
        {"properties": {"": "a"}},
        {"properties": {"UNIQ_KEY": ""}},
        {"properties": {"long": "x" * 33_000}},
    ],
)
def test_what_cannot_be_encoded_goes_as_a_message_that_the_proxy_refuses(
    fields: dict[str, Any],
) -> None:
    message = message_of(**fields)
    assert encoded(message) is None
    with pytest.raises(IllegalMessage):
        outbound(message, max_body_bytes=4_000_000)


def bodies(request: Delivery, now_ns: int = 0) -> list[int]:
    """Return the values of the messages of the next try, which is encoded."""
    call, _ = request.call(now_ns)
    assert call.method == "sendEncoded"
    return [int(entry.body) for entry in decode_batch(call.arguments.batch.body)]  # type: ignore[attr-defined]


def test_a_batch_is_divided_by_the_queues_of_its_keys() -> None:
    """Each queue's messages keep their order, whether a key, a number or a name chose it."""
    messages = [Outgoing("orders", b"%d" % n, key=f"k{n % 9}") for n in range(90)]
    messages += [Outgoing("orders", b"90", queue=1), Outgoing("orders", b"91", queue="broker-a_1")]
    parts = knowing(*QUEUES).divided(request_of(*messages))
    found = {part.qid: bodies(part) for part in parts}
    for number, qid in enumerate(QUEUES):
        expected = [n for n in range(90) if abs(key_hash(f"k{n % 9}")) % 3 == number]
        assert found[qid] == expected + ([90, 91] if number == 1 else [])


def test_messages_without_a_key_are_spread() -> None:
    messages = [Outgoing("orders", b"%d" % n, key=" ") for n in range(96)]
    parts = knowing(*QUEUES).divided(request_of(*messages))
    assert [part.qid for part in parts] == [None] * 3
    assert [n for part in parts for n in bodies(part)] == list(range(96))


def test_a_queue_with_a_message_that_cannot_be_encoded_gets_messages() -> None:
    messages = [Outgoing("orders", b"%d" % n, queue=n % 2) for n in range(64)]
    messages[31] = Outgoing("orders", b"31", queue=1, tag="a\x01")
    encoded_part, plain = knowing(*QUEUES).divided(request_of(*messages))
    assert bodies(encoded_part) == list(range(0, 64, 2))
    assert plain.entries is None
    sent = [each.body for each in plain.messages if isinstance(each, producer.Message)]
    assert sent == [b"%d" % n for n in range(1, 64, 2)]


@pytest.mark.parametrize(
    ("known", "messages"),
    [
        (knowing(*QUEUES), [Outgoing("orders", b"1")] * (LEAST_ENCODED - 1)),
        (knowing(*QUEUES), [Outgoing("orders", b"1", queue=n % 3) for n in range(40)]),
        (knowing(), [Outgoing("orders", b"1")] * 100),
        (knowing(*QUEUES), [Outgoing("orders", b"1", queue=7)] * 100),
    ],
)
def test_other_batches_go_as_messages(known: EncodedRequests, messages: list[Outgoing]) -> None:
    request = request_of(*messages)
    assert known.divided(request) == [request]


def test_queues_are_asked_for_again_after_a_while() -> None:
    known, request = EncodedRequests(), request_of(*[Outgoing("orders", b"1")] * 50)
    assert known.topics_to_ask(request, 0) == ["orders"]
    known.told("orders", producer.WritableQueues(code=0, qids=QUEUES), 0)
    assert known.topics_to_ask(request, 29 * S) == []
    assert known.topics_to_ask(request, 30 * S) == ["orders"]
    known.not_told("orders", ConnectionLost("lost"), 30 * S)
    assert known.topics_to_ask(request, 32 * S) == []
    assert known.divided(request) == [request]
    assert known.topics_to_ask(request, 33 * S) == ["orders"]


def test_an_earlier_proxy_gets_messages_from_then_on() -> None:
    known, request = knowing(*QUEUES), request_of(*[Outgoing("orders", b"1", queue=0)] * 50)
    (part,) = known.divided(request)
    fault = ProxyFault("unknown method", retriable=False, unknown_method=True)
    known.failed(fault)
    assert part.pause_after_error(fault, sent=True, now_ns=0, jitter=0.5) == 0.0
    assert part.call(0)[0].method == "sendBatchSync"
    assert not part.in_doubt
    assert known.topics_to_ask(request, 60 * S) == []
    assert known.divided(request) == [request]


def part_of(*numbers: int) -> Delivery:
    messages = [
        Outgoing("orders", b"%d" % n, queue=0, properties={"UNIQ_KEY": f"ID{n}"}) for n in numbers
    ]
    (part,) = knowing(*QUEUES).divided(request_of(*messages))
    return part


def answered(part: Delivery, code: int, stored: int, now_ns: int = 0) -> float | None:
    answer = producer.EncodedResult(code=code, msg="the reason", stored=stored)
    return part.pause_after(answer, now_ns=now_ns, jitter=0.5)


def test_what_is_stored_of_an_encoded_request_is_not_sent_again() -> None:
    part = part_of(*range(20))
    assert answered(part, 70, 5)
    assert not part.in_doubt
    assert bodies(part) == list(range(5, 20))
    assert answered(part, 0, 0) is None
    assert part.open_ids() == []


def test_a_request_in_doubt_leaves_all_its_messages_in_doubt() -> None:
    part = part_of(*range(20))
    assert answered(part, 12, 5)
    with pytest.raises(SendFailed, match="the reason") as caught:
        answered(part, 15, 0, now_ns=10 * S)
    assert list(caught.value.failures) == [f"ID{n}" for n in range(5, 20)]
    assert caught.value.outcome_unknown


def test_a_lost_answer_leaves_all_messages_in_doubt() -> None:
    part = part_of(*range(20))
    with pytest.raises(SendFailed, match="lost") as caught:
        part.pause_after_error(ConnectionLost("lost"), sent=True, now_ns=10 * S, jitter=0.5)
    assert len(caught.value.failures) == 20
    assert caught.value.outcome_unknown


def test_a_refused_request_is_explained_by_its_messages() -> None:
    """A doubt of an earlier try is kept."""
    part = part_of(*range(20))
    assert answered(part, 12, 5)
    assert answered(part, 11, 0) == 0.0
    call, _ = part.call(0)
    assert call.method == "sendBatchSync"
    assert len(call.arguments.messages) == 15  # type: ignore[attr-defined]
    refusal = producer.Result(code=11, msg="message 1 of 15: illegal")
    with pytest.raises(SendFailed, match="illegal") as caught:
        part.pause_after(refusal, now_ns=0, jitter=0.5)
    assert (caught.value.code, caught.value.outcome_unknown) == (11, True)
