"""Blocking calls of Spark's processes to proxies, retried when a proxy fails.

Bulk reads take no leases, and proxies keep no state for them: any proxy can answer the next call,
and every call here can be repeated.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from thin_client import forks
from thin_client.addresses import Address
from thin_client.backoff import backoff_ns, is_news, tries_elsewhere
from thin_client.calls import Call
from thin_client.connection import Connection
from thin_client.errors import ClientError
from thin_client.servers import Servers
from thin_client.spark.options import Connecting
from thin_client.spark.server_order import KnownFailures

T = TypeVar("T")
_log = logging.getLogger("orderlane")

#: Time for which calls are retried: longer than the restart or replacement of a proxy.
PATIENCE_S = 60.0
#: What this process knows of the proxies: a worker of Spark serves the tasks of many queries.
FAILURES = KnownFailures()


class ProxyCalls:
    """Calls to the proxies of *connecting*, over one connection. Not thread-safe."""

    def __init__(
        self,
        connecting: Connecting,
        *,
        patience_s: float = PATIENCE_S,
        failures: KnownFailures | None = None,
    ) -> None:
        """Raise ValueError for an invalid address or certificate. The first call connects.

        *failures*: what other calls of this process know of the proxies, and learn from these.
        """
        self._timeout_s = connecting.request_timeout_s
        self._failures = failures or KnownFailures()
        order = self._failures.order(connecting.servers, time.monotonic())
        self._servers = Servers(order, tls=connecting.tls)
        self._patience_s = patience_s
        self._connection: Connection | None = None
        self._ahead: _Ahead | None = None
        forks.register(self)

    @property
    def address(self) -> Address:
        """The current proxy's address, as configured."""
        return self._servers.address

    def forked(self) -> None:
        """Drop the parent's connection in a child process: the next call opens a new one."""
        self._connection = self._ahead = None

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._ahead = None

    def ask(
        self,
        make: Callable[[], Call[T]],
        *,
        patience_s: float | None = None,
        about: Hashable | None = None,
    ) -> T:
        """Return the first answer of any proxy, tried in order. Raises ClientError.

        The answer may be that of a call sent ahead for the same *about*.
        """
        until = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        failures = 0
        while True:
            call = make()
            try:
                answer = self._answer(call, about)
                self._failures.answered(str(self.address))
                return answer
            except ClientError as error:
                failures += 1
                if not error.leaves_connection:
                    self._connection = None
                if not error.retriable or time.monotonic() >= until:
                    raise
                if is_news(failures):
                    _log.warning("%s failed, retrying: %s", call.method, error)
                if tries_elsewhere(error, failures):
                    self._failures.failed(str(self.address), time.monotonic())
                    self.close()
                    self._servers.go_on()
            time.sleep(backoff_ns(failures, random.random()) / 1e9)

    def ask_ahead(self, call: Call[Any], *, about: Hashable) -> None:
        """Send *call* without waiting, if connected; the later ``ask`` reports a failure."""
        if self._connection is None:
            return
        try:
            self._connection.start(call, timeout_s=self._timeout_s)
        except ClientError:
            self.close()
        else:
            self._ahead = _Ahead(about, call)

    def _answer(self, call: Call[T], about: Hashable | None) -> T:
        """Return the answer to *call*, or to the call sent ahead for the same *about*."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and self._connection is not None:
            if ahead.about == about:
                found: T = self._connection.finish(ahead.call, timeout_s=self._timeout_s)
                return found
            self.close()  # the connection's next answer belongs to another call
        return self._connected().call(call, timeout_s=self._timeout_s)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._servers.destination, timeout_s=self._timeout_s)
        return self._connection


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A call that was sent ahead and whose answer has not been read."""

    about: Hashable
    call: Call[Any]
