"""Calls that begin in one pass of the event loop and go to a broker by one request.

A call that is alone, and all calls to brokers without such requests, are made by themselves.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from broker_core.clock import now_ns
from broker_core.errors import BrokerError, ConnectionLost, NotConnected, RemotingError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.together import MAX_ENTRIES
from broker_core.tasks import cancel_and_wait, spawn

E = TypeVar("E")
R = TypeVar("R")

#: Bytes of a request, unless its first entry is larger.
MOST_BYTES = 1024 * 1024
#: Time after which a broker without such requests is asked again.
ASK_AGAIN_NS = 60_000_000_000
#: Answers of brokers without extensions; some check rights before they look at the code.
NOT_SERVED = frozenset({ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION})


def same_error(error: RemotingError) -> RemotingError:
    """Return a copy of *error*: an error that is raised refers to the frames that it passed."""
    if isinstance(error, BrokerError):
        return BrokerError(error.code, error.remark, request=error.request)
    return type(error)(str(error))


class Gathered(Generic[E, R]):
    """The calls of one kind, by broker."""

    def __init__(
        self,
        what: str,
        *,
        together: Callable[[str, Sequence[E]], Awaitable[Sequence[R | RemotingError]]],
        alone: Callable[[str, E], Awaitable[R]],
        size_of: Callable[[E], int],
    ) -> None:
        """Gather calls.

        Args:
            what: names them in logs
            together: calls a broker for several entries; returns their results in order, raises
                RemotingError if it failed as a whole
            alone: calls a broker for one entry
            size_of: bytes of an entry
        """
        self._what = what
        self._together = together
        self._alone = alone
        self._size_of = size_of
        self._waiting: defaultdict[str, list[tuple[E, asyncio.Future[list[R]]]]] = defaultdict(list)
        self._refused_ns: dict[str, int] = {}  # when a broker refused such requests
        self._tasks: set[asyncio.Task[None]] = set()
        self._planned = False
        self._closed = False

    async def call(self, broker: str, entry: E) -> R:
        """Return the result for *entry*. Raise RemotingError."""
        if self._closed:
            raise self._is_closed(broker)
        refused_ns = self._refused_ns.get(broker)
        if refused_ns is not None and now_ns() - refused_ns < ASK_AGAIN_NS:
            return await self._alone(broker, entry)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[R]] = loop.create_future()
        self._waiting[broker].append((entry, result))
        if not self._planned:
            self._planned = True
            loop.call_soon(self._send)
        found = await result
        return found[0] if found else await self._alone(broker, entry)

    def broker_lost(self, broker: str) -> None:
        """Note a lost connection: another version may answer at *broker* from now on."""
        self._refused_ns.pop(broker, None)

    async def close(self) -> None:
        """End all calls."""
        self._closed = True
        await cancel_and_wait(*self._tasks)

    def _is_closed(self, broker: str) -> NotConnected:
        return NotConnected(f"{self._what} at {broker}: this client is closed")

    def _send(self) -> None:
        self._planned = False
        waiting, self._waiting = self._waiting, defaultdict(list)
        for broker, calls in waiting.items():
            if self._closed:
                for _, result in calls:
                    _fail(result, self._is_closed(broker))
                continue
            for part in self._parts(calls):
                if len(part) == 1:
                    _settle(part[0][1], [])
                    continue
                task = spawn(self._call(broker, part), name=f"{self._what} at {broker}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _parts(
        self, calls: list[tuple[E, asyncio.Future[list[R]]]]
    ) -> list[list[tuple[E, asyncio.Future[list[R]]]]]:
        parts: list[list[tuple[E, asyncio.Future[list[R]]]]] = []
        left = entries = 0
        for call in calls:
            size = self._size_of(call[0])
            if not parts or size > left or entries == MAX_ENTRIES:
                parts.append([])
                left, entries = MOST_BYTES, 0
            parts[-1].append(call)
            left -= size
            entries += 1
        return parts

    async def _call(self, broker: str, part: list[tuple[E, asyncio.Future[list[R]]]]) -> None:
        try:
            results = await self._together(broker, [entry for entry, _ in part])
        except RemotingError as error:
            not_served = isinstance(error, BrokerError) and error.code in NOT_SERVED
            if not_served:
                self._refused_ns[broker] = now_ns()
            for _, result in part:
                if not_served:
                    _settle(result, [])
                else:
                    _fail(result, same_error(error))
            return
        except BaseException:  # the client is being closed
            for _, result in part:
                text = f"{self._what} at {broker}: this client was closed before the answer"
                _fail(result, ConnectionLost(text))
            raise
        for (_, result), found in zip(part, results, strict=True):
            if isinstance(found, RemotingError):
                _fail(result, found)
            else:
                _settle(result, [found])


def _settle(result: asyncio.Future[list[R]], found: list[R]) -> None:
    if not result.done():
        result.set_result(found)


def _fail(result: asyncio.Future[list[R]], error: RemotingError) -> None:
    if not result.done():
        result.set_exception(error)
