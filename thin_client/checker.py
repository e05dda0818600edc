"""The thread of a blocking producer that answers checks of its group's transactions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from thin_client import chance
from thin_client.connection import Connection
from thin_client.errors import ClientError
from thin_client.servers import Servers
from thin_client.transactions import ANSWER_S, CheckRounds, PreparedMessage, failed_check

_log = logging.getLogger("orderlane")


class Checker:
    """The thread. It ends with ``close``, once a check under way has returned."""

    def __init__(
        self, rounds: CheckRounds, servers: Servers, check: Callable[[PreparedMessage], object]
    ) -> None:
        """*servers* are used by the thread alone. Call ``start`` once."""
        self._rounds = rounds
        self._servers = servers
        self._check = check
        self._closed = threading.Event()
        self._connection: Connection | None = None

    def start(self) -> None:
        """Start the thread, which may run a check at once."""
        threading.Thread(target=self._run, name="orderlane checks", daemon=True).start()

    def close(self) -> None:
        """End the thread, without waiting for a check that runs."""
        self._closed.set()
        self._hang_up()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                try:
                    self._round()
                except ClientError as error:
                    self._hang_up()
                    if self._closed.is_set():
                        return
                    server = self._servers.address
                    self._servers.go_on()
                    self._closed.wait(self._rounds.failed(error, server, chance.fraction()))
        except Exception as error:  # a bug
            _log.error("checks of transactions are no longer answered", exc_info=error)
        finally:
            self._hang_up()

    def _round(self) -> None:
        """Wait for checks, and answer them. Raises ClientError."""
        connection = self._connected()
        call, timeout_s = self._rounds.poll()
        for message in self._rounds.to_check(connection.call(call, timeout_s=timeout_s)):
            try:
                decision: Any = self._check(message)
            except BaseException as error:  # none may silently end this thread
                failed_check(message, error)
                continue
            ended = self._rounds.ended(message, decision)
            if ended is not None:
                self._rounds.answered(message, connection.call(ended, timeout_s=2 * ANSWER_S))

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is None:
            connection = Connection(self._servers.destination, timeout_s=ANSWER_S)
            self._connection = connection
            if self._closed.is_set():  # ``close`` did not see it
                self._hang_up()
        return connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
