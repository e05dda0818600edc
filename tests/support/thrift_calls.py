"""A valid call of every method of the Thrift port, as payloads in both protocols."""

from __future__ import annotations

from typing import Any

from broker_core.names import Topic
from broker_core.remoting.half_place import HalfPlace
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from testkit.lanes import GROUP, TOPIC
from testkit.thrift_client import (
    BINARY,
    COMPACT,
    chain,
    ddmq_pull,
    link,
    our_pull,
    payload_of,
    structs,
)
from thrift_idl import consumer, producer

CONTEXT = consumer.Context(GROUP, TOPIC, "broker-a_0#1")
NACK = consumer.Nack(leaseId=1, retryAfterMs=5, reject=False, reason="r")
ACKS = [consumer.AckBatch(CONTEXT, acked=[1, 2], nacked=[NACK], released=[3])]
MESSAGE = producer.Message(topic=TOPIC, key="k", hashId=1, body=b"b", properties={"n": "v"})
ENCODED = encode_batch([OutgoingMessage(Topic(TOPIC), b"b", properties={"UNIQ_KEY": "1"})])
TRANSACTION = HalfPlace("broker-a", TOPIC, "tx", 0, 0, "id").to_text()
PLACES = {TOPIC: {"broker-a_0": 0}}

CALLS: dict[str, list[Any]] = {
    "pull": [our_pull(GROUP, acks=ACKS, manyQueues=True, topics=[TOPIC])],
    "submit": [chain(link(CONTEXT, success=[0]), link(CONTEXT, failed=[1]))],
    "settle": [consumer.AckRequest(GROUP, ACKS)],
    "extend": [consumer.ExtendRequest(GROUP, [consumer.LeaseRef(CONTEXT, 1)], 100)],
    "fetch": [consumer.FetchRequest("r", GROUP, "", PLACES, 3, 20)],
    "ack": [consumer.AckResult("r", GROUP, "", PLACES)],
    "ranges": [consumer.RangesRequest(GROUP, [TOPIC], 1)],
    "topics": [consumer.TopicsRequest(GROUP)],
    "report": [
        consumer.ProgressReport(GROUP, "r", PLACES, {TOPIC: 2}, {TOPIC: 3}, {TOPIC: 4}, PLACES)
    ],
    "getConsumeStats": [consumer.ConsumeStatsRequest(GROUP, TOPIC)],
    "sendSync": [MESSAGE, 100],
    "sendAsync": [MESSAGE],
    "sendBatchSync": [[MESSAGE, MESSAGE]],
    "sendEncoded": [producer.EncodedBatch(TOPIC, "broker-a_0", 1, ENCODED, 100)],
    "sendDelaySync": [producer.DelayMessage(topic=TOPIC, action=1), 100],
    "prepareTransaction": [producer.PrepareRequest(MESSAGE, "tx", 100, 60)],
    "endTransaction": [producer.EndRequest(TRANSACTION, 1, 100)],
    "transactionChecks": [producer.ChecksRequest("tx", [TOPIC], 20)],
    "writableQueues": [producer.QueuesRequest(TOPIC)],
}
VALID = [
    payload_of(method, structs(method)[0](*values), protocol=protocol)
    for method, values in CALLS.items()
    for protocol in (COMPACT, BINARY)
]
VALID += [payload_of("pull", structs("pull")[0](ddmq_pull(GROUP, result=link(CONTEXT))))]
