"""An answer to a remoting request that is given later, without a task or future per request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from broker_core.remoting.command import RemotingCommand

_Given: TypeAlias = "RemotingCommand | Exception | None"


class LateAnswer:
    """An answer that is given later, once, by any part of the server.

    A single event can thus answer many waiting requests without a task or future for each.
    """

    __slots__ = ("_given", "_then")

    def __init__(self) -> None:
        self._given: list[_Given] = []  # the answer, until it is passed on
        self._then: Callable[[_Given], None] | None = None

    def give(self, answer: _Given) -> None:
        """Answer once, like a handler that returns *answer* or raises it."""
        then, self._then = self._then, None
        if then is not None:
            then(answer)
        else:
            self._given.append(answer)

    async def given(self) -> RemotingCommand | None:
        """Return the answer if it was given, or raise it."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answers: list[RemotingCommand | None] = []
        failed: list[Exception] = []

        def take(answer: _Given) -> None:
            if isinstance(answer, Exception):
                failed.append(answer)
            else:
                answers.append(answer)
            if not given.done():
                given.set_result(None)

        self.wait(take)
        await given
        if failed:
            raise failed.pop()  # kept in no variable: it will refer to this frame and its callers'
        return answers[0]

    def wait(self, then: Callable[[_Given], None]) -> None:
        """Call *then* with the answer: now if it was given already, otherwise when it is."""
        if self._given:
            then(self._given.pop())
        else:
            self._then = then
