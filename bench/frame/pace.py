"""Current speed of the machine: the processor time of a constant reference step.

A cloud machine sometimes runs at half its usual speed, in processor time too. So each run records
the processor time per message for encoding and decoding an answer of 256 messages right before it:
a mix of C and interpreter objects, similar to a proxy's.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from thrift.protocol import fastbinary
from thrift.transport.TTransport import TMemoryBuffer

from thrift_idl import consumer, consumer_service

MESSAGES, _ROUNDS, _REPEATS = 256, 7, 20


class _Source:
    """The protocol object as the C decoder needs it."""

    string_length_limit = container_length_limit = 1 << 30

    def __init__(self, encoded: bytes) -> None:
        self.trans = TMemoryBuffer(encoded)


def codec_us() -> float:
    """Return the processor time per message in µs; a median over about 0.1 s."""
    answer: Any = consumer_service.pull_result(success=_response())
    spec = [answer.__class__, answer.thrift_spec]
    taken = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(_REPEATS):
            encoded = fastbinary.encode_compact(answer, spec)
            fastbinary.decode_compact(consumer_service.pull_result(), _Source(encoded), spec)
        taken.append(time.process_time() - began)
    return round(statistics.median(taken) / _REPEATS / MESSAGES * 1e6, 3)


def _response() -> consumer.PullResponse:
    messages = [
        consumer.Message(
            key=f"key-{number}",
            value=bytes(256),
            tag="paid",
            offset=10**9 + number,
            properties={"colour": "red", "size": "large"},
        )
        for number in range(MESSAGES)
    ]
    return consumer.PullResponse(
        context=consumer.Context(groupId="g", topic="orders", qid="q"), messages=messages
    )
