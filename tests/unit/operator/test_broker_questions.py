"""Questions to brokers and readers are limited, and one slow broker or reader stops no other."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.errors import BrokerError, RequestTimeout
from broker_core.tasks import spawn
from proxy.errors import Overloaded
from proxy.operator.broker_questions import BrokerQuestions, Readers


async def test_a_broker_that_failed_is_asked_no_more() -> None:
    """A page over a thousand queues of a dead broker would otherwise wait a thousand times."""
    asked: list[str] = []

    async def fails() -> int:
        asked.append("a")
        await asyncio.sleep(3)
        raise RequestTimeout("no answer")

    async def answers() -> int:
        return 1

    questions = BrokerQuestions()
    found = await asyncio.gather(
        *(questions.ask("a", fails) for _ in range(100)), questions.ask("b", answers)
    )
    assert found == [None] * 100 + [1]
    assert len(asked) == 16, "those asked before the first failure"
    assert questions.unanswered == {"a": "no answer"}


async def test_an_optional_question_may_be_refused() -> None:
    async def refuses() -> int:
        raise BrokerError(16, "no permission", request="GET_BROKER_CONFIG")

    questions = BrokerQuestions()
    assert await questions.ask_optional("a", refuses) is None
    assert questions.unanswered == {}


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
