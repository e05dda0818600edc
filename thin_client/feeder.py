"""I/O of a ``Session`` with threads.

One thread pulls. For each proxy that holds leases another thread settles and extends, on its own
connection, because a waiting pull occupies the first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from thin_client import calls, chance
from thin_client.addresses import Address
from thin_client.backoff import tries_elsewhere
from thin_client.clock import now_ns
from thin_client.connection import Connection
from thin_client.errors import ClientError, ConnectionLost
from thin_client.feeder_rules import Reports, added_and_removed, destinations
from thin_client.lease import Home
from thin_client.options import Observer, Timing
from thin_client.servers import Destination, Servers
from thin_client.session import Session
from thrift_idl import consumer

_NEVER = 1 << 63


class _Line:
    """One thread's connection, and its wake-up condition."""

    def __init__(self, lock: threading.RLock, due_at: Callable[[], int | None]) -> None:
        """*due_at* returns the time of the next request by ``now_ns``; None while none is due."""
        self.connection: Connection | None = None
        self.closed = False
        self._due_at = due_at
        self._changed = threading.Condition(lock)
        self._planned_ns = 0  # end of the thread's sleep; 0 while it does not sleep

    def wait(self) -> bool:
        """Wait until a request is due and return True; False once closed. Caller holds the lock."""
        while not self.closed:
            at = self._due_at()
            left_s = None if at is None else (at - now_ns()) / 1e9
            if left_s is not None and left_s <= 0:
                return True
            self._planned_ns = _NEVER if at is None else at
            self._changed.wait(left_s)
            self._planned_ns = 0
        return False

    def turn(self) -> None:
        """Wake the thread if a change made a request due sooner. Caller holds the lock."""
        if self._planned_ns:
            at = self._due_at()
            if at is not None and at < self._planned_ns:
                self._changed.notify()

    def hang_up(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def close(self) -> None:
        """End the thread, even during a call. Caller holds the lock."""
        self.closed = True
        self._changed.notify()
        if self.connection is not None:
            self.connection.close()


class Feeder:
    """The connections of one consumer. ``failure``: the error that ended it, None while it runs."""

    def __init__(
        self,
        session: Session,
        servers: Servers,
        *,
        lock: threading.RLock,
        timing: Timing,
        observer: Observer,
        changed: Callable[[], None],
    ) -> None:
        """*lock* guards the session; *changed* is called under it after each answer or failure."""
        self.failure: BaseException | None = None
        self._session = session
        self._servers = servers
        self._pulled_from = servers.destination
        self._lock = lock
        self._timeout_s = timing.request_timeout_s
        self._reports = Reports(observer, group=session.options.group)
        self._changed = changed
        self._pulls = _Line(lock, session.pull_at)
        self._homes: dict[Home, _Line] = {}
        self._threads: list[threading.Thread] = []
        self._unstarted: list[Callable[[], None]] = []  # work of threads that could not start

    @property
    def address(self) -> Address:
        """Address to which pulls are sent."""
        return self._servers.address

    def start(self) -> None:
        """Start pulling."""
        self._spawn(self._pull_forever, name="orderlane pull")

    def turn(self) -> None:
        """Start the requests that have become due. Caller holds the lock."""
        self._session.calm()
        self._pulls.turn()
        for line in self._homes.values():
            line.turn()

    def close(self) -> None:
        """End all threads and connections, and abandon pending requests."""
        with self._lock:
            for line in (self._pulls, *self._homes.values()):
                line.close()
        for thread in self._threads:
            thread.join(self._timeout_s)

    # ---- pulling --------------------------------------------------------------------------------

    def _pull_forever(self) -> None:
        line = self._pulls
        while self.failure is None:
            with self._lock:
                if not line.wait():
                    break
            self._pull_once(line)
            with self._lock:
                if line.closed:  # a thread started now for a new home would never end
                    break
                self._update_homes()
                self._changed()
        line.hang_up()
        for serve in self._unstarted:
            serve()  # until its line is closed

    def _pull_once(self, line: _Line) -> None:
        session = self._session
        try:
            if line.connection is None:
                self._pulled_from = to = self._servers.destination
                self._reports.connecting(to.address, failures=session.pull_failures)
                line.connection = Connection(to, timeout_s=self._timeout_s)
                self._reports.connected(to.address)
            with self._lock:
                if session.stopping:  # stopped while connecting
                    return
                request = session.begin_pull(now_ns())
                self.turn()  # verdicts are urgent while a pull waits at the proxy
            timeout_s = (request.maxLingerTime or 0) / 1000 + self._timeout_s
            response = line.connection.call(calls.pull(request), timeout_s=timeout_s)
            with self._lock:
                pulled = session.pull_answered(response, now_ns())
            self._reports.pulled(pulled)
        except ClientError as error:
            line.hang_up()
            with self._lock:
                session.pull_failed(now_ns(), chance.fraction())
                if tries_elsewhere(error, session.pull_failures):
                    self._servers.go_on()
                if line.closed:
                    return
                if not error.retriable:
                    self.failure = error.with_traceback(None)
            self._reports.pull_failed(error, failures=session.pull_failures)

    # ---- settling and extending -----------------------------------------------------------------

    def _update_homes(self) -> None:
        """Keep exactly one thread for each proxy in the session.

        If one cannot start, pulling ends, and its thread returns what that proxy has leased.
        """
        met, gone = added_and_removed(self._session, self._homes)
        for home in met:
            line = _Line(self._lock, lambda home=home: self._session.control_at(home))  # type: ignore[misc]
            self._homes[home] = line
            name = f"orderlane settle {home.address}"
            serve = partial(self._control_forever, home, line, self._pulled_from)
            try:
                self._spawn(serve, name=name)
            except RuntimeError as error:  # the system has no more threads
                self.failure = error.with_traceback(None)
                self._unstarted.append(serve)
        for home in gone:
            self._homes.pop(home).close()

    def _control_forever(self, home: Home, line: _Line, pulled_from: Destination) -> None:
        while True:
            with self._lock:
                if not line.wait():
                    break
                request = self._session.begin_control(home, now_ns())
            if request is None:
                continue
            try:
                if line.connection is None:
                    line.connection = self._open(home, pulled_from)
                    with self._lock:
                        if line.closed:  # closed while connecting: nothing would end the call
                            break
                answer = line.connection.call(calls.control(request), timeout_s=self._timeout_s)
            except ClientError as error:
                line.hang_up()
                self._control_failed(home, error)
            else:
                self._control_answered(home, request, answer)
            with self._lock:
                self._changed()
        line.hang_up()

    def _control_answered(
        self,
        home: Home,
        request: consumer.AckRequest | consumer.ExtendRequest,
        answer: consumer.AckAnswer,
    ) -> None:
        with self._lock:
            settled = len(home.settling or ())
            lost = self._session.control_answered(home, answer, now_ns())
        self._reports.control_answered(request, answer, settled=settled, lost=lost)

    def _control_failed(self, home: Home, error: ClientError) -> None:
        with self._lock:
            lost = self._session.control_failed(home, now_ns(), chance.fraction())
        self._reports.control_failed(home, error, lost)

    def _open(self, home: Home, pulled_from: Destination) -> Connection:
        """Connect to the proxy that holds the leases; raises ConnectionLost."""
        *others, last = destinations(home, self._servers, pulled_from)
        for each in others:
            with suppress(ConnectionLost):
                return Connection(each, timeout_s=self._timeout_s)
        return Connection(last, timeout_s=self._timeout_s)

    # ---- threads --------------------------------------------------------------------------------

    def _spawn(self, target: Callable[[], None], *, name: str) -> None:
        def run() -> None:
            try:
                target()
            except BaseException as error:  # a bug: raise it in the application instead of hanging
                with self._lock:
                    self.failure = error
                    self._changed()

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)  # one that did not start could not be joined
