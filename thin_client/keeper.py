"""A thread that extends the asyncio consumer's leases while the event loop is blocked.

A blocking handler keeps the loop from extending leases, and messages would be delivered to other
clients although their process is alive. The thread sends heartbeats through the loop. While none
returns, it extends leases in place of the loop, on its own connections. In the session it changes
only deadlines. It ends with its loop, so leases of a dead process still expire.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from thin_client import calls
from thin_client.arrivals import name_in
from thin_client.clock import now_ns
from thin_client.connection import Connection
from thin_client.errors import ClientError
from thin_client.lease import Home, Lease, LeaseName
from thin_client.lease_extension import LeaseExtension
from thin_client.session import Session

_log = logging.getLogger("orderlane")
_S = 1_000_000_000
#: Heartbeats per lease, and the bounds of the pause between them, in seconds.
_SIGNS_A_LEASE, _SHORTEST_S, _LONGEST_S = 24, 0.02, 1.0


class Keeper:
    """The thread. It ends with ``close``, or when its loop is closed."""

    def __init__(
        self,
        session: Session,
        *,
        loop: asyncio.AbstractEventLoop,
        connect: Callable[[Home], Connection],
        timeout_s: float,
        refused: Callable[[list[Lease]], None],
    ) -> None:
        """Start the thread.

        Args:
            session: the consumer's session.
            loop: the event loop to watch.
            connect: connects to a proxy that holds leases; raises ConnectionLost.
            timeout_s: time-out of a request, in seconds.
            refused: called in the loop with the leases that a proxy refused to extend.
        """
        self._session = session
        self._loop = loop
        self._connect = connect
        self._timeout_s = timeout_s
        self._refused = refused
        self._closed = threading.Event()
        self._connections: dict[Home, Connection] = {}
        self._asked_ns = 0  # time of the pending heartbeat; 0: none is pending
        self._kept_ns: dict[Home, int] = {}  # times of extensions since then
        self._gone: set[LeaseName] = set()  # leases refused since then
        self._warned = False
        threading.Thread(target=self._run, name="orderlane leases", daemon=True).start()

    def close(self) -> None:
        """End the thread after its pending call, without waiting for it."""
        self._closed.set()

    # ---- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed.wait(self._pause_s()):
                if self._loop.is_closed():
                    return
                if self._asked_ns:
                    self._keep()
                elif self._session.holds_any:
                    self._asked_ns = now_ns()
                    self._loop.call_soon_threadsafe(self._sign_of_life)
        except Exception as error:
            if not self._loop.is_closed():
                text = "leases are no longer extended while the event loop is blocked"
                _log.error(text, exc_info=error)
        finally:
            for home in list(self._connections):
                self._hang_up(home)

    @property
    def _lease_ns(self) -> int:
        return self._session.lease_ns or 0

    def _pause_s(self) -> float:
        return min(max(self._lease_ns / _SIGNS_A_LEASE / _S, _SHORTEST_S), _LONGEST_S)

    def _keep(self) -> None:
        """Extend leases if a heartbeat is overdue.

        The loop extends after a third of a lease; a sixth later, half of the lease is left.
        """
        at_ns = now_ns()
        if at_ns < self._asked_ns + self._lease_ns // 6 or not self._loop.is_running():
            return  # a stopped loop runs no handlers
        for home in list(self._session.homes.values()):
            if self._kept_ns.get(home, 0) + self._lease_ns // 4 > at_ns:
                continue
            kept = self._session.to_extend(home, self._gone)
            if kept is not None:
                self._kept_ns[home] = at_ns
                self._extend(home, kept)

    def _extend(self, home: Home, kept: LeaseExtension) -> None:
        try:
            connection = self._connections.get(home)
            if connection is None:
                connection = self._connections[home] = self._connect(home)
            asked_ns = now_ns()
            answer = connection.call(calls.control(kept.request), timeout_s=self._timeout_s)
        except ClientError as error:
            self._hang_up(home)
            self._kept_ns.pop(home, None)  # retry in the next iteration
            _log.debug("extending leases for a blocked event loop failed: %s", error)
            return
        gone = {name_in(reference) for reference in answer.notHeld or ()}
        self._gone |= gone
        refused = kept.extended(asked_ns, gone)
        if refused and not self._closed.is_set():
            self._loop.call_soon_threadsafe(self._refused, refused)

    def _hang_up(self, home: Home) -> None:
        connection = self._connections.pop(home, None)
        if connection is not None:
            connection.close()

    # ---- in the loop ----------------------------------------------------------------------------

    def _sign_of_life(self) -> None:
        blocked_ns = now_ns() - self._asked_ns
        self._kept_ns.clear()
        self._gone.clear()
        self._asked_ns = 0
        if blocked_ns * 3 > self._lease_ns and not self._warned and not self._closed.is_set():
            self._warned = True
            _log.warning(
                "the event loop was blocked for %.1f s, the lease is %g s: use a plain def, which"
                " runs in a thread, or await long operations; a thread extended the leases",
                blocked_ns / _S,
                self._lease_ns / _S,
            )
