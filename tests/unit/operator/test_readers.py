"""Readers are limited, one slow reader stops no other, and viewers share answers."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.errors import RequestTimeout
from broker_core.tasks import spawn
from proxy.errors import Overloaded
from proxy.operator.readers import Readers, SharedAnswers


async def test_readers_are_admitted_in_turn_and_refused_after_a_wait() -> None:
    readers, ended = Readers(), asyncio.Event()

    async def read() -> None:
        async with readers.place():
            await ended.wait()

    running = [spawn(read(), name="reader") for _ in range(4)]
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    with pytest.raises(Overloaded, match="4 other requests of operators are reading"):
        await read()
    assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, rel=0.01)
    waiting = spawn(read(), name="reader")
    ended.set()
    await asyncio.gather(*running, waiting)


class Slow:
    """A question whose answer takes *takes_s*; it counts how often it was asked."""

    def __init__(self, takes_s: float) -> None:
        self._takes_s = takes_s
        self.asked = 0

    async def __call__(self) -> int:
        self.asked += 1
        await asyncio.sleep(self._takes_s)
        return self.asked


async def test_viewers_share_an_answer_for_nine_times_as_long_as_it_took() -> None:
    shared: SharedAnswers[int] = SharedAnswers()
    slow = Slow(1.0)
    assert await asyncio.gather(*(shared.of("keys", slow) for _ in range(5))) == [1] * 5
    await asyncio.sleep(8.9)
    assert await shared.of("keys", slow) == 1
    await asyncio.sleep(0.2)
    assert await shared.of("keys", slow) == 2
    assert await shared.of("other keys", Slow(0.0)) == 1


async def test_an_answer_without_what_a_silent_broker_has_counts_only_as_long_as_it_took() -> None:
    """Most of that time was a wait, and the broker may answer again."""
    shared: SharedAnswers[int] = SharedAnswers(is_partial=lambda found: found == 1)
    slow = Slow(3.0)
    assert await shared.of("keys", slow) == 1
    await asyncio.sleep(2.9)
    assert await shared.of("keys", slow) == 1
    await asyncio.sleep(0.2)
    assert await shared.of("keys", slow) == 2
    await asyncio.sleep(26)
    assert await shared.of("keys", slow) == 2


async def test_an_answer_counts_on_its_own_basis_alone_and_does_not_return() -> None:
    """A queue that was owned for a verb is released again: what was known before is old."""
    shared: SharedAnswers[int] = SharedAnswers()
    slow = Slow(1.0)
    found = [await shared.of("keys", slow, basis=basis) for basis in ("all", "one", "one", "all")]
    assert found == [1, 2, 2, 3]


async def test_a_failed_question_is_asked_again_by_each_viewer() -> None:
    shared: SharedAnswers[int] = SharedAnswers()
    asked = 0

    async def fails() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(1)
        raise RequestTimeout("no answer")

    for number in (1, 2):
        with pytest.raises(RequestTimeout):
            await shared.of("keys", fails)
        assert asked == number
    assert await shared.of("keys", Slow(0.0)) == 1


async def test_old_answers_are_forgotten() -> None:
    shared: SharedAnswers[int] = SharedAnswers()
    for number in range(1_000):
        await shared.of(number, Slow(0.001))
        await asyncio.sleep(0.1)
    assert len(shared) < 300
