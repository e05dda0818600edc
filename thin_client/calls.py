"""The thin client's calls: the generated structs of each, and the decoding of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from thin_client.arrivals import PullResult
from thin_client.errors import ProtocolError, Refused
from thin_client.wire import Struct, decode_reply, encode_call
from thrift_idl import consumer, consumer_service, producer, producer_service

T = TypeVar("T")

#: Answers with a code, without which they say nothing: a send must not count as stored, or as not
#: stored.
_CODED = (
    producer.Result,
    producer.DelayResult,
    producer.EncodedResult,
    producer.Prepared,
    producer.ChecksAnswer,
    producer.WritableQueues,
)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call with an answer of type T."""

    method: str
    arguments: Struct
    result: Any  # the generated *_result struct that the answer fills

    def encode(self, sequence_id: int) -> bytes:
        """Return the frame to send."""
        return encode_call(self.method, self.arguments, sequence_id=sequence_id)

    def decode(self, frame: bytes, *, sequence_id: int, sender: object) -> T:
        """Return the answer. Raises Refused, ProxyFault or ProtocolError that name the *sender*."""
        result = decode_reply(
            frame, self.result, method=self.method, sequence_id=sequence_id, sender=sender
        )
        error = getattr(result, "error", None)
        if error is not None:
            raise Refused(error.code or 0, f"{sender} refused {self.method}: {error.message}")
        if result.success is None:
            raise ProtocolError(f"{sender} sent an empty answer to {self.method}")
        answer: T = result.success
        if isinstance(answer, _CODED):
            of_each = getattr(answer, "messages", None) or ()
            if answer.code is None or any(each.code is None for each in of_each):
                raise ProtocolError(f"{sender} answered {self.method} without a code")
        return answer


def pull(request: consumer.PullRequest) -> Call[consumer.PullResponse]:
    """Return the call that sends verdicts and pulls messages."""
    arguments = consumer_service.pull_args(request=request)
    return Call("pull", arguments, PullResult())


def control(
    request: consumer.AckRequest | consumer.ExtendRequest,
) -> Call[consumer.AckAnswer]:
    """Return the call that settles or extends, by the type of *request*."""
    if isinstance(request, consumer.AckRequest):
        settle = consumer_service.settle_args(request=request)
        return Call("settle", settle, consumer_service.settle_result())
    extend = consumer_service.extend_args(request=request)
    return Call("extend", extend, consumer_service.extend_result())


def send(message: producer.Message, *, timeout_ms: int) -> Call[producer.Result]:
    """Return the call that stores one message."""
    arguments = producer_service.sendSync_args(message=message, timeout=timeout_ms)
    return Call("sendSync", arguments, producer_service.sendSync_result())


def send_delayed(message: producer.DelayMessage, *, timeout_ms: int) -> Call[producer.DelayResult]:
    """Return the call that stores one message for delayed delivery."""
    arguments = producer_service.sendDelaySync_args(delayMessage=message, timeout=timeout_ms)
    return Call("sendDelaySync", arguments, producer_service.sendDelaySync_result())


def send_batch(messages: list[producer.Message]) -> Call[producer.Result]:
    """Return the call that stores several messages in order."""
    arguments = producer_service.sendBatchSync_args(messages=messages)
    return Call("sendBatchSync", arguments, producer_service.sendBatchSync_result())


def send_encoded(batch: producer.EncodedBatch) -> Call[producer.EncodedResult]:
    """Return the call that stores messages of one queue that are encoded already."""
    arguments = producer_service.sendEncoded_args(batch=batch)
    return Call("sendEncoded", arguments, producer_service.sendEncoded_result())


def prepare_transaction(
    request: producer.PrepareRequest, *, timeout_ms: int
) -> Call[producer.Prepared]:
    """Return the call that stores a half message."""
    request.timeoutMs = timeout_ms
    arguments = producer_service.prepareTransaction_args(request=request)
    result = producer_service.prepareTransaction_result()
    return Call("prepareTransaction", arguments, result)


def end_transaction(request: producer.EndRequest, *, timeout_ms: int) -> Call[producer.Result]:
    """Return the call that commits or rolls back."""
    request.timeoutMs = timeout_ms
    arguments = producer_service.endTransaction_args(request=request)
    return Call("endTransaction", arguments, producer_service.endTransaction_result())


def transaction_checks(request: producer.ChecksRequest) -> Call[producer.ChecksAnswer]:
    """Return the call that waits for questions about open transactions."""
    arguments = producer_service.transactionChecks_args(request=request)
    return Call("transactionChecks", arguments, producer_service.transactionChecks_result())


def writable_queues(request: producer.QueuesRequest) -> Call[producer.WritableQueues]:
    """Return the call for the queues to which the client can send."""
    arguments = producer_service.writableQueues_args(request=request)
    return Call("writableQueues", arguments, producer_service.writableQueues_result())


def fetch(request: consumer.FetchRequest) -> Call[consumer.FetchResponse]:
    """Return the call that reads by offset."""
    arguments = consumer_service.fetch_args(request=request)
    return Call("fetch", arguments, consumer_service.fetch_result())


def ranges(request: consumer.RangesRequest) -> Call[list[consumer.QueueRange]]:
    """Return the call for the offsets of queues."""
    arguments = consumer_service.ranges_args(request=request)
    return Call("ranges", arguments, consumer_service.ranges_result())


def topics(request: consumer.TopicsRequest) -> Call[list[str]]:
    """Return the call for the topics that a bulk reader can read."""
    arguments = consumer_service.topics_args(request=request)
    return Call("topics", arguments, consumer_service.topics_result())


def report(request: consumer.ProgressReport) -> Call[consumer.ReportAnswer]:
    """Return the call that reports the progress of a bulk reader."""
    arguments = consumer_service.report_args(request=request)
    return Call("report", arguments, consumer_service.report_result())
