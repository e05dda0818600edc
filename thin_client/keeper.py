"""Keeps leases alive while the event loop is blocked: a thread beside the asyncio consumer.

A handler that does not let go of the loop keeps it from extending leases, and messages would go to
others although their process is alive. The thread asks the loop for a sign of life. While none
comes it extends, on connections of its own, what the loop would have extended. It changes nothing
of the session but deadlines. It ends with its loop, so what a dead process held is lost as soon as
before.
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
from thin_client.kept import Kept
from thin_client.lease import Home, Lease, LeaseName
from thin_client.session import Session

_log = logging.getLogger("orderlane")
_S = 1_000_000_000
#: How often the loop is asked for a sign of life, in one lease; with bounds of the pause, in s.
_SIGNS_A_LEASE, _SHORTEST_S, _LONGEST_S = 24, 0.02, 1.0


class Keeper:
    """The thread. ``close`` ends it; it ends by itself when its loop is closed."""

    def __init__(
        self,
        session: Session,
        *,
        loop: asyncio.AbstractEventLoop,
        connect: Callable[[Home], Connection],
        timeout_s: float,
        refused: Callable[[list[Lease]], None],
    ) -> None:
        """*connect* opens a connection to a proxy that holds leases, and raises ConnectionLost.
        *refused* is called in the loop with leases that a proxy would not extend.
        """
        self._session = session
        self._loop = loop
        self._connect = connect
        self._timeout_s = timeout_s
        self._refused = refused
        self._closed = threading.Event()
        self._connections: dict[Home, Connection] = {}
        self._asked_ns = 0  # when the loop was asked for the sign of life that has not come; 0: all
        self._kept_ns: dict[Home, int] = {}  # when leases were extended since then
        self._gone: set[LeaseName] = set()  # and those that were refused
        self._warned = False
        threading.Thread(target=self._run, name="orderlane leases", daemon=True).start()

    def close(self) -> None:
        """End the thread, at once or after the call that is under way; does not wait for it."""
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
                text = "leases are not extended any more while the event loop is blocked"
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
        """No sign of life came: extend what the loop may not come to extend in time. It does so at
        a third of a lease, so half of it is left after a sixth more.
        """
        at_ns = now_ns()
        if at_ns < self._asked_ns + self._lease_ns // 6 or not self._loop.is_running():
            return  # no handler runs in a loop that was left
        for home in list(self._session.homes.values()):
            if self._kept_ns.get(home, 0) + self._lease_ns // 4 > at_ns:
                continue
            kept = self._session.to_keep(home, self._gone)
            if kept is not None:
                self._kept_ns[home] = at_ns
                self._extend(home, kept)

    def _extend(self, home: Home, kept: Kept) -> None:
        try:
            connection = self._connections.get(home)
            if connection is None:
                connection = self._connections[home] = self._connect(home)
            asked_ns = now_ns()
            answer = connection.call(calls.control(kept.request), timeout_s=self._timeout_s)
        except ClientError as error:
            self._hang_up(home)
            self._kept_ns.pop(home, None)  # again at the next look
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
                " runs in a thread, or await what takes long; a thread extended leases meanwhile",
                blocked_ns / _S,
                self._lease_ns / _S,
            )
