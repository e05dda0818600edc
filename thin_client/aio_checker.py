"""The task of an asyncio producer that answers checks of its group's transactions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from thin_client import chance
from thin_client.aio_connection import AsyncConnection
from thin_client.aio_handlers import is_cancelled, outcome_of
from thin_client.errors import ClientError
from thin_client.servers import Servers
from thin_client.transactions import ANSWER_S, CheckRounds, PreparedMessage, failed_check

_log = logging.getLogger("orderlane")


class AsyncChecker:
    """The task, in the running loop. It ends with ``close``, which cancels a check under way."""

    def __init__(
        self, rounds: CheckRounds, servers: Servers, check: Callable[[PreparedMessage], Any]
    ) -> None:
        """Start the task. *servers* are used by it alone."""
        self.loop = asyncio.get_running_loop()
        self._rounds = rounds
        self._servers = servers
        self._check = check
        self._connection: AsyncConnection | None = None
        self._task = self.loop.create_task(self._run(), name="orderlane checks")

    def close(self) -> None:
        """End the task; nothing is left of it if its loop is closed."""
        if not self.loop.is_closed():
            self._task.cancel()
        elif self._connection is not None:
            self._connection.forked()

    async def ended(self) -> None:
        """Wait until the task has ended."""
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._round()
                except ClientError as error:
                    self._hang_up()
                    server = self._servers.address
                    self._servers.go_on()
                    await asyncio.sleep(self._rounds.failed(error, server, chance.fraction()))
        except Exception as error:  # a bug
            _log.error("checks of transactions are no longer answered", exc_info=error)
        finally:
            self._hang_up()

    async def _round(self) -> None:
        """Wait for checks, and answer them. Raises ClientError."""
        connection = self._connection
        if connection is None:
            connection = await AsyncConnection.open(self._servers.destination, timeout_s=ANSWER_S)
            self._connection = connection
        call, timeout_s = self._rounds.poll()
        for message in self._rounds.to_check(await connection.call(call, timeout_s=timeout_s)):
            try:
                # A task of its own: a check may cancel the task in which it runs.
                asked = self.loop.create_task(self._outcome(message), name="orderlane check")
                decision, failure = await asked
                if failure is not None:
                    raise failure
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                failed_check(message, error)  # of a task or future that the check awaited
                continue
            except (GeneratorExit, KeyboardInterrupt):  # of the loop
                raise
            except BaseException as error:  # none may silently end this task
                failed_check(message, error)
                continue
            ended = self._rounds.ended(message, decision)
            if ended is not None:
                result = await connection.call(ended, timeout_s=2 * ANSWER_S)
                self._rounds.answered(message, result)

    async def _outcome(self, message: PreparedMessage) -> tuple[Any, BaseException | None]:
        """Return the decision, or a SystemExit as a value: raised by a task it would end the
        loop.
        """
        try:
            return await self._decision(message), None
        except SystemExit as error:
            return None, error

    async def _decision(self, message: PreparedMessage) -> Any:
        check = self._check
        if inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(
            getattr(check, "__call__", None)  # noqa: B004  # an object with an async __call__
        ):
            return await check(message)
        decision, error = await asyncio.to_thread(outcome_of, check, message)
        if error is not None:
            raise error
        return await decision if inspect.isawaitable(decision) else decision

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
