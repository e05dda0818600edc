"""Any bytes on a remoting port end at most their own connection; the servers continue (P9)."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand, SerializeType
from tests.support.bad_requests import AT_BROKER, AT_NAMESERVER, TOPIC, bad_bodies
from tests.support.examples import examples
from tests.support.raw_requests import Asker, asking, raw_connection

Fuzz = Callable[[Callable[[Asker], Coroutine[Any, Any, None]]], None]

VALID = [
    RemotingCommand(code, opaque=5, ext=good.ext(), body=good.content(), serialize=form).encode()
    for code, good in (AT_BROKER | AT_NAMESERVER).items()
    for form in SerializeType
]
BODIES = {code: list(bad_bodies(good)) for code, good in (AT_BROKER | AT_NAMESERVER).items()}
TEXTS = st.text(max_size=20) | st.sampled_from(["orders", "g", "-1", "9" * 25, "true", "NaN"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)


@pytest.fixture
def fuzz() -> Any:
    """Run coroutines beside one broker and nameserver that live as long as the test."""
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as folder:
        context = asking(Path(folder))
        asker = runner.run(context.__aenter__())
        yield lambda part: runner.run(part(asker))
        runner.run(context.__aexit__(None, None, None))


async def survives(asker: Asker, parts: list[bytes]) -> None:
    """Send *parts* to both ports, then send requests on connections opened before."""
    for address in (asker.cluster.broker_address, asker.cluster.nameserver):
        async with raw_connection(address) as (reader, writer):
            for part in parts:
                writer.write(part)
            writer.write_eof()
            try:
                async with asyncio.timeout(5):
                    await reader.read()  # ends: the port closes ended and broken connections
            except ConnectionResetError:
                pass
    assert await asker.stored() >= 1
    (answer,) = await asker.ask(asker.cluster.nameserver, RemotingCommand(106))
    assert answer.code == 0
    asker.assert_nothing_broke()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid frame with bytes changed, removed and inserted; its length mostly fits again."""
    frame = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(4, len(frame)))
        gone = draw(st.integers(0, 2))
        frame[at : at + gone] = draw(st.binary(max_size=3))
    if draw(st.integers(0, 9)):
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)


@st.composite
def made_up(draw: st.DrawFn) -> bytes:
    """A valid frame of a known code, with arbitrary fields and body."""
    code = draw(st.sampled_from([*AT_BROKER, *AT_NAMESERVER]))
    good = (AT_BROKER | AT_NAMESERVER)[code]
    ext = good.ext()
    for name in draw(st.lists(st.sampled_from([*ext, "x"]), max_size=4)):
        ext[name] = draw(TEXTS)
    if code == RequestCode.DELETE_TOPIC_IN_BROKER and ext.get("topic") == TOPIC:
        ext["topic"] = "another"  # a valid request: the broker would serve it
    body = draw(
        st.just(good.content())
        | st.sampled_from(BODIES[code])
        | st.binary(max_size=60)
        | JSON_VALUES.map(_json)
    )
    form = draw(st.sampled_from(SerializeType))
    return RemotingCommand(code, opaque=5, ext=ext, body=body, serialize=form).encode()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()  # with integers of any length


def test_random_bytes(fuzz: Fuzz) -> None:
    @settings(max_examples=examples(40), deadline=None)
    @given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
    def check(parts: list[bytes]) -> None:
        fuzz(lambda asker: survives(asker, parts))

    check()


def test_mutated_frames_cut_anywhere(fuzz: Fuzz) -> None:
    @settings(max_examples=examples(150), deadline=None)
    @given(st.lists(mutated(), min_size=1, max_size=3), st.integers(0, 600))
    def check(frames: list[bytes], cut: int) -> None:
        stream = b"".join(frames)
        fuzz(lambda asker: survives(asker, [stream[:cut], stream[cut:]]))

    check()


def test_frames_with_fields_and_bodies_of_any_kind(fuzz: Fuzz) -> None:
    @settings(max_examples=examples(150), deadline=None)
    @given(st.lists(made_up(), min_size=1, max_size=5))
    def check(frames: list[bytes]) -> None:
        fuzz(lambda asker: survives(asker, frames))

    check()
