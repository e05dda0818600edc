"""Questions to several brokers, of which any may be silent: the others' answers count all the same.

All brokers are asked at once. A silent one is asked no more by the same request, so each costs at
most one timeout, and its error is kept under its name: what it would have told is unknown.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from broker_core.errors import BrokerError, NotRegistered, RemotingError
from broker_core.names import QueueName
from proxy.errors import Unavailable

T = TypeVar("T")

#: Concurrent requests to one broker for one request of an operator.
_AT_ONCE = 16


class BrokerQuestions:
    """Asks brokers, each 16 questions at a time. One that does not answer is asked no more; one
    that refuses a question, such as for one group, may answer another.
    """

    def __init__(self, in_words: Callable[[RemotingError], str] = str) -> None:
        """*in_words* returns the text of an error."""
        self._in_words = in_words
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE)
        )
        self._silent: set[str] = set()
        #: First errors of brokers that failed, by name.
        self.unanswered: dict[str, str] = {}

    async def ask(self, broker: str, question: Callable[[], Awaitable[T]]) -> T | None:
        """Return the answer to *question*, None if *broker* fails or was silent before."""
        async with self._slots[broker]:
            if broker in self._silent:
                return None
            try:
                return await question()
            except RemotingError as error:
                if not isinstance(error, BrokerError):
                    self._silent.add(broker)
                self.note(broker, error)
                return None

    @property
    def silent(self) -> dict[str, str]:
        """Errors of the brokers that did not answer; the others refused a question."""
        return {broker: self.unanswered[broker] for broker in self._silent}

    def note(self, who: str, error: RemotingError) -> None:
        """Keep the first *error* of *who*: a broker, or the brokers of a topic."""
        self.unanswered.setdefault(who, self._in_words(error))

    async def ask_optional(self, broker: str, question: Callable[[], Awaitable[T]]) -> T | None:
        """As ``ask``, for a question that not every broker answers, or not for every account."""

        async def answered() -> T | None:
            try:
                return await question()
            except BrokerError:
                return None

        return await self.ask(broker, answered)

    async def ask_each(
        self,
        queues: Iterable[QueueName],
        question: Callable[[list[QueueName]], Awaitable[T]],
    ) -> list[T]:
        """Ask each broker of *queues* about its own, all at once; return the answers that came."""
        by_broker: defaultdict[str, list[QueueName]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker].append(queue)

        async def one(broker: str, there: list[QueueName]) -> list[T]:
            async def answered() -> list[T]:
                return [await question(there)]

            return await self.ask(broker, answered) or []

        answers = await asyncio.gather(*(one(*each) for each in by_broker.items()))
        return [each for answer in answers for each in answer]

    def refuse_if_silent(self, brokers: Collection[str]) -> None:
        """Raise Unavailable if none of *brokers* answered; nothing is known then."""
        if brokers and self.unanswered.keys() >= set(brokers):
            raise Unavailable(self.sentence)

    @property
    def sentence(self) -> str:
        """The errors of the brokers that failed."""
        return failures(self.unanswered)


def no_route(queue: QueueName) -> NotRegistered:
    """Return the error for a *queue* that was known before, and whose broker is in no route now."""
    return NotRegistered(f"the nameservers have no route to {queue.broker}")


def failures(unanswered: Mapping[str, str]) -> str:
    """Return the errors of brokers, by name, as one sentence."""
    return "; ".join(f"{broker}: {why}" for broker, why in sorted(unanswered.items()))
