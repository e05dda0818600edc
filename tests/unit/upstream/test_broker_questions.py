"""One slow or silent broker stops no other, and what it would have told is named as unknown."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.errors import BrokerError, RequestTimeout
from broker_core.names import QueueName, Topic
from proxy.errors import Unavailable
from proxy.upstream.broker_questions import BrokerQuestions

QUEUES = [
    QueueName(Topic("orders"), f"broker-{name}", number) for name in "abc" for number in (0, 1)
]


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


async def test_others_are_not_kept_waiting_by_the_questions_to_a_silent_broker() -> None:
    loop = asyncio.get_running_loop()

    async def hangs() -> float:
        await asyncio.sleep(3)
        raise RequestTimeout("no answer")

    async def answers() -> float:
        return loop.time()

    began, questions = loop.time(), BrokerQuestions()
    *_, answered = await asyncio.gather(
        *(questions.ask("a", hangs) for _ in range(100)), questions.ask("b", answers)
    )
    assert answered == pytest.approx(began, abs=0.1)


async def test_all_brokers_are_asked_at_once_each_about_its_own_queues() -> None:
    loop = asyncio.get_running_loop()

    async def question(queues: list[QueueName]) -> list[QueueName]:
        await asyncio.sleep(3)
        if queues[0].broker != "broker-c":
            raise RequestTimeout(f"no answer of {queues[0].broker}")
        return queues

    began, questions = loop.time(), BrokerQuestions()
    assert await questions.ask_each(QUEUES, question) == [QUEUES[4:]]
    assert loop.time() - began == pytest.approx(3, abs=0.1)
    assert questions.sentence == (
        "broker-a: no answer of broker-a; broker-b: no answer of broker-b"
    )
    questions.refuse_if_silent({"broker-a", "broker-c"})
    with pytest.raises(Unavailable, match="no answer of broker-b"):
        questions.refuse_if_silent({"broker-a", "broker-b"})
    questions.refuse_if_silent(())
