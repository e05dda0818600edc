"""Turns of threads, in the order in which they asked for them."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from typing import Self


class Turns:
    """A lock whose owners follow each other in the order in which they asked for it.

    ``threading.Lock`` is not fair: a thread that has just released it may take it again before one
    that has waited for it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: deque[Turn] = deque()  # the first one has begun

    def ask(self) -> Turn:
        """Take the last place of the queue. The turn lasts as long as its context; it must be
        entered.
        """
        turn = Turn(self)
        with self._guard:
            if not self._turns:
                turn.begin()
            self._turns.append(turn)
        return turn

    def end(self, turn: Turn) -> None:
        """Remove *turn*, which has begun or waits, and begin the next one."""
        with self._guard:
            self._turns.remove(turn)  # nearly always the first
            if self._turns:
                self._turns[0].begin()


class Turn:
    """One thread's place."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._begun = threading.Event()

    def begin(self) -> None:
        """Let its thread go on."""
        self._begun.set()

    def __enter__(self) -> Self:
        try:
            self._begun.wait()
        except BaseException:  # interrupted, such as by Ctrl-C
            self._turns.end(self)
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._turns.end(self)
