"""Arbitrary bytes on the Thrift port affect at most their own connection (P9)."""

from __future__ import annotations

import asyncio

import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.downstream.producer_service import ProducerService
from proxy.history.record import NullHistory
from testkit.eventually import eventually
from testkit.lanes import GROUP
from testkit.messages import keyed, message
from testkit.thrift_client import connect, framed
from tests.support.examples import examples
from tests.support.fake_broker_client import FakeBrokerClient, bulk
from tests.support.thrift_calls import CALLS, VALID


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Return a valid call with bytes changed, removed and inserted, mostly with a correct
    length.
    """
    payload = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(payload)))
        gone = draw(st.integers(0, 2))
        payload[at : at + gone] = draw(st.binary(max_size=3))
    frame = framed(bytes(payload))
    return frame if draw(st.integers(0, 9)) else frame[: draw(st.integers(0, len(frame)))]


async def survives(parts: list[bytes]) -> None:
    """Feed *parts* to a proxy while another client pulls; nothing may break."""
    broker = FakeBrokerClient(orders=2)
    broker.store(*(message(offset) for offset in range(5)))
    with structlog.testing.capture_logs() as logs:
        async with bulk(broker) as (it, _):
            sends = ProducerService(broker, NullHistory(), max_body_bytes=1000)  # type: ignore[arg-type]
            it.serve(sends.entries())
            owned = it.own()
            it.feed(owned, *(keyed(offset, str(offset)) for offset in range(9)))
            async with connect(it.port) as good:
                async with connect(it.port) as bad:
                    await good.pull(GROUP, maxBatchSize=2)
                    for part in parts:
                        bad.send_bytes(part)
                        assert await good.settle(GROUP) == []
                    bad.abort()
                await eventually(lambda: len(it.server.open) == 1)
                await eventually(lambda: it.lane().presence.waiting_pulls == 0)
                it.feed(owned, keyed(9, "9"))  # the malformed call may have pulled all others
                assert (await good.pull(GROUP, maxBatchSize=1)).messages
            await sends.transactions.close()
    assert [line for line in logs if line["log_level"] == "error"] == []
    closed = [line for line in logs if line["event"] == "connection closed: invalid request"]
    assert len(closed) == it.server.bad_frames <= 1
    assert all(len(str(line)) < 1000 for line in logs)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_random_bytes(parts: list[bytes]) -> None:
    asyncio.run(survives(parts))


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(min_size=1, max_size=200), st.sampled_from([b"", b"\x82\x21\x01\x04pull"]))
def test_random_bytes_within_a_frame(payload: bytes, head: bytes) -> None:
    asyncio.run(survives([framed(head + payload)]))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(mutated(), min_size=1, max_size=3), st.integers(0, 300))
def test_mutated_calls_cut_anywhere(frames: list[bytes], cut: int) -> None:
    stream = b"".join(frames)
    asyncio.run(survives([stream[:cut], stream[cut:]]))


def test_the_calls_that_are_mutated_are_right_themselves() -> None:
    """Otherwise the mutations would prove little."""

    async def all_answered() -> None:
        broker = FakeBrokerClient(orders=2)
        async with bulk(broker) as (it, _), connect(it.port) as client:
            sends = ProducerService(broker, NullHistory(), max_body_bytes=1000)  # type: ignore[arg-type]
            it.serve(sends.entries())
            for method, values in CALLS.items():
                assert await client.call(method, *values) is not None
            await sends.transactions.close()

    asyncio.run(all_answered())
    assert len(VALID) == 39
