"""The count of elements agrees with the decoder: it reads the same bytes, and misses no object."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from thrift.transport.TTransport import TMemoryBuffer

from proxy.downstream.port.elements.budget import Budget
from proxy.downstream.port.frames import Call, FrameError
from testkit.thrift_client import BINARY, COMPACT, payload_of, structs
from tests.support.examples import examples
from tests.support.thrift_calls import VALID
from thrift_idl import consumer

STRUCTS, VALUES = 1_000, 10_000


class _Everything:
    """A source that the decoder skips, which shows where it stopped."""

    def __init__(self, data: bytes, at: int) -> None:
        self.trans = TMemoryBuffer(data, at)
        self.string_length_limit = 0x3FFFFFFF
        self.container_length_limit = 100_000


def decoded(call: Call, payload: bytes, at: int) -> tuple[Any, int] | None:
    """Return the arguments and the end of their bytes; None if the decoder refuses them."""
    arguments = structs(call.name)[0]()
    source = _Everything(payload, at)
    try:
        call.codec.decode(arguments, source, [arguments.__class__, arguments.thrift_spec])
    except Exception:  # it raises various exceptions
        return None
    return arguments, source.trans.cstringio_buf.tell()


def objects_in(value: Any) -> tuple[int, int]:
    """Return the number of structs in containers, and that of other values."""
    entries: list[Any] = []
    if isinstance(value, list | set):
        entries = list(value)
    elif isinstance(value, dict):
        entries = [*value, *value.values()]
    elif hasattr(value, "thrift_spec"):
        defaults = {field[2]: field[4] for field in value.thrift_spec if field is not None}
        fields = [(getattr(value, name), defaults[name]) for name in value.__slots__]
        found = [objects_in(each) for each, default in fields if each != default]
        return sum(each[0] for each in found), sum(1 + each[1] for each in found)
    found = [objects_in(each) for each in entries]
    are_structs = sum(hasattr(each, "thrift_spec") for each in entries)
    return (
        are_structs + sum(each[0] for each in found),
        len(entries) - are_structs + sum(each[1] for each in found),
    )


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    payload = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(payload)))
        gone = draw(st.integers(0, 2))
        payload[at : at + gone] = draw(st.binary(max_size=3))
    return bytes(payload)


@settings(max_examples=examples(1500), deadline=None)
@given(mutated())
def test_the_count_reads_what_the_decoder_reads(payload: bytes) -> None:
    try:
        call = Call(payload)
        structs(call.name)
    except (FrameError, AttributeError, IndexError):
        return
    at = len(call.answer_head(1, 0)) - 4
    found = decoded(call, payload, at)
    if found is None:
        return  # the count may pass: the decoder refuses the bytes itself
    value, end = found
    budget = Budget(STRUCTS, VALUES)
    assert call.codec.count(payload, at, budget, max_container=100_000) == end
    seen_structs, seen_values = objects_in(value)
    assert STRUCTS - budget.structs >= seen_structs
    assert VALUES - budget.values >= seen_values
    assert budget.values >= VALUES - 3 * len(payload)  # nothing is counted twice


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.text(max_size=20))
def test_both_protocols_spend_the_same_on_a_request(acks: int, nacks: int, reason: str) -> None:
    context = consumer.Context("g", "t", "b_0#1")
    nacked = [consumer.Nack(leaseId=n, retryAfterMs=n, reason=reason) for n in range(nacks)]
    batch = consumer.AckBatch(context, acked=list(range(acks)), nacked=nacked, released=[acks])
    request = structs("settle")[0](consumer.AckRequest("g", [batch, batch]))
    spent = []
    for protocol in (COMPACT, BINARY):
        budget = Budget()
        Call(payload_of("settle", request, protocol=protocol)).count(budget)
        spent.append((budget.structs, budget.values))
    assert spent[0] == spent[1]
