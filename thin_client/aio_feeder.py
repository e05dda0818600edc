"""I/O of a ``Session`` on asyncio.

Pulls need no task: each is sent when it becomes due, and its answer calls back. For each proxy that
holds leases a task settles and extends, on its own connection, because a waiting pull occupies the
first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial

from thin_client import calls, chance, clock
from thin_client.addresses import Address
from thin_client.aio_connection import AsyncConnection
from thin_client.backoff import tries_elsewhere
from thin_client.clock import now_ns
from thin_client.connection import Connection
from thin_client.errors import ClientError, ConnectionLost
from thin_client.feeder_rules import Reports, added_and_removed, destinations
from thin_client.keeper import Keeper
from thin_client.lease import Home, Lease
from thin_client.options import Observer, Timing
from thin_client.servers import Destination, Servers
from thin_client.session import Session
from thrift_idl import consumer

_NEVER = 1 << 63


class _Alarm:
    """Calls *ring* when a request is due.

    The due time changes with nearly every message, mostly to later. A running timer is therefore
    kept, and the due time is checked again when it expires.
    """

    def __init__(self, due_at: Callable[[], int | None], ring: Callable[[], None]) -> None:
        """*due_at* returns the due time by ``now_ns``; None while nothing is due."""
        self._due_at = due_at
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at_ns = _NEVER

    def turn(self) -> bool:
        """Ring if the request is due; otherwise ensure that it rings in time. Called after every
        change. Return True if it rang.
        """
        at = self._due_at()
        if at is None or at >= self._rings_at_ns:
            return False
        if at > now_ns():
            self._set(at)
            return False
        self._ring()
        return True

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at_ns = None, _NEVER

    def _set(self, at: int) -> None:
        self.close()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later((at - now_ns()) / 1e9, self._expired)
        self._rings_at_ns = at

    def _expired(self) -> None:
        self._timer, self._rings_at_ns = None, _NEVER
        self.turn()


class _Sleeper:
    """Lets one task wait until a request is due."""

    def __init__(self, due_at: Callable[[], int | None]) -> None:
        """*due_at* as of ``_Alarm``."""
        self._due_at = due_at
        self._alarm = _Alarm(due_at, self._wake)
        self._sleep: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until the request is due."""
        while (at := self._due_at()) is None or at > now_ns():
            self._sleep = asyncio.get_running_loop().create_future()
            self._alarm.turn()
            try:
                await self._sleep
            finally:
                self._sleep = None

    def turn(self) -> None:
        """Wake the task if the request is due; otherwise ensure that it wakes in time."""
        if self._sleep is not None and not self._sleep.done():
            self._alarm.turn()

    def close(self) -> None:
        """Stop the timer."""
        self._alarm.close()

    def _wake(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)


class AsyncFeeder:
    """The connections of one consumer. ``failure``: the error that ended it, None while it runs."""

    def __init__(
        self,
        session: Session,
        servers: Servers,
        *,
        timing: Timing,
        observer: Observer,
        changed: Callable[[], None],
    ) -> None:
        """*changed* is called after each answer and failure."""
        self.failure: BaseException | None = None
        #: The event loop in which it was started, None before.
        self.loop: asyncio.AbstractEventLoop | None = None
        #: True if a pull was sent since the last ``should_yield``.
        self.pulled = False
        self._session = session
        self._servers = servers
        self._pulled_from = servers.destination
        self._timeout_s = timing.request_timeout_s
        self._reports = Reports(observer, group=session.options.group)
        self._changed = changed
        self._pull_alarm = _Alarm(session.pull_at, self._pull)
        self._pulling: AsyncConnection | None = None
        self._connecting = False  # to pull
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._homes: dict[Home, tuple[_Sleeper, asyncio.Task[None]]] = {}
        self._keeper: Keeper | None = None

    @property
    def address(self) -> Address:
        """Address to which pulls are sent."""
        return self._servers.address

    def start(self) -> None:
        """Start pulling."""
        self.loop = asyncio.get_running_loop()
        if clock.is_real():  # a thread cannot wait by a simulated clock
            self._keeper = Keeper(
                self._session,
                loop=self.loop,
                connect=self._connect,
                timeout_s=self._timeout_s,
                refused=self._refused,
            )
        self._pull_alarm.turn()

    def turn(self) -> None:
        """Start the requests that have become due. Called after a change of the session."""
        self._session.calm()
        if not self._pull_alarm.turn():  # a pull turns them itself
            self._turn_homes()

    def should_yield(self) -> bool:
        """Return True once after each pull: a busy task lets others run while the proxy works."""
        pulled, self.pulled = self.pulled, False
        return pulled

    async def close(self) -> None:
        """End all tasks and connections, and abandon pending requests."""
        self.abandon()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def abandon(self) -> None:
        """Close without waiting: the tasks end in later iterations of the loop."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._pull_alarm.close()
        self._hang_up()
        if self._keeper is not None:
            self._keeper.close()

    # ---- pulling --------------------------------------------------------------------------------

    def _pull(self) -> None:
        """Send the pull that is due, on a connection that may have to be opened first; turn the
        homes, for which verdicts are urgent while a pull waits.
        """
        if self._closed or self._connecting or self.failure is not None:
            self._turn_homes()
        elif self._pulling is None:
            self._connecting = True
            self._spawn(self._connect_to_pull(), name="orderlane connect")
            self._turn_homes()
        else:
            try:
                self._send_pull(self._pulling)
            except Exception as error:
                self._broke(error)

    async def _connect_to_pull(self) -> None:
        self._pulled_from = to = self._servers.destination
        self._reports.connecting(to.address, failures=self._session.pull_failures)
        try:
            self._pulling = await AsyncConnection.open(to, timeout_s=self._timeout_s)
            self._reports.connected(to.address)
        except ClientError as error:
            self._pull_failed(error)
        finally:
            self._connecting = False
        self._changed()  # stopped meanwhile, nothing is due

    def _send_pull(self, connection: AsyncConnection) -> None:
        self.pulled = True
        request = self._session.begin_pull(now_ns())
        self._turn_homes()
        timeout_s = (request.maxLingerTime or 0) / 1000 + self._timeout_s
        connection.ask(calls.pull(request), timeout_s=timeout_s, done=self._pull_done)

    def _pull_done(self, answer: consumer.PullResponse | ClientError) -> None:
        try:
            if isinstance(answer, ClientError):
                self._pull_failed(answer)
            else:
                self._pull_answered(answer)
            self._update_homes()
        except Exception as error:
            self._broke(error)
        else:
            self._changed()

    def _pull_answered(self, answer: consumer.PullResponse) -> None:
        try:
            count = self._session.pull_answered(answer, now_ns())
        except ClientError as error:
            self._pull_failed(error)
        else:
            self._reports.pulled(count)

    def _pull_failed(self, error: ClientError) -> None:
        session = self._session
        session.pull_failed(now_ns(), chance.fraction())
        self._hang_up()
        if tries_elsewhere(error, session.pull_failures):
            self._servers.go_on()
        if not error.retriable:
            self.failure = error.with_traceback(None)
        self._reports.pull_failed(error, failures=session.pull_failures)

    def _hang_up(self) -> None:
        if self._pulling is not None:
            self._pulling.drop()
            self._pulling = None

    # ---- settling and extending -----------------------------------------------------------------

    def _turn_homes(self) -> None:
        for sleeper, _ in self._homes.values():
            sleeper.turn()

    def _update_homes(self) -> None:
        """Keep exactly one task for each proxy in the session."""
        if self._homes.keys() == set(self._session.homes.values()):
            return
        met, gone = added_and_removed(self._session, self._homes)
        for home in met:
            sleeper = _Sleeper(partial(self._session.control_at, home))
            name = f"orderlane settle {home.address}"
            control = self._control_forever(home, sleeper, self._pulled_from)
            self._homes[home] = (sleeper, self._spawn(control, name=name))
        for home in gone:
            _, task = self._homes.pop(home)
            task.cancel()

    async def _control_forever(
        self, home: Home, sleeper: _Sleeper, pulled_from: Destination
    ) -> None:
        connection = None
        try:
            while True:
                await sleeper.wait()
                request = self._session.begin_control(home, now_ns())
                if request is None:
                    continue
                try:
                    connection = connection or await self._open(home, pulled_from)
                    answer = await connection.call(
                        calls.control(request), timeout_s=self._timeout_s
                    )
                except ClientError as error:
                    if connection is not None:
                        connection.close()
                        connection = None
                    self._control_failed(home, error)
                else:
                    self._control_answered(home, request, answer)
                self._changed()
        finally:
            sleeper.close()
            if connection is not None:
                connection.close()

    def _control_answered(
        self,
        home: Home,
        request: consumer.AckRequest | consumer.ExtendRequest,
        answer: consumer.AckAnswer,
    ) -> None:
        settled = len(home.settling or ())
        lost = self._session.control_answered(home, answer, now_ns())
        self._reports.control_answered(request, answer, settled=settled, lost=lost)

    def _control_failed(self, home: Home, error: ClientError) -> None:
        lost = self._session.control_failed(home, now_ns(), chance.fraction())
        self._reports.control_failed(home, error, lost)

    # ---- for the Keeper's thread ----------------------------------------------------------------

    def _connect(self, home: Home) -> Connection:
        """Connect to the proxy that holds the leases, in the Keeper's thread."""
        *others, last = destinations(home, self._servers, self._pulled_from)
        for each in others:
            with suppress(ConnectionLost):
                return Connection(each, timeout_s=self._timeout_s)
        return Connection(last, timeout_s=self._timeout_s)

    def _refused(self, leases: list[Lease]) -> None:
        self._reports.lost(self._session.refused(leases))
        self._changed()

    async def _open(self, home: Home, pulled_from: Destination) -> AsyncConnection:
        """Connect to the proxy that holds the leases; raises ConnectionLost."""
        *others, last = destinations(home, self._servers, pulled_from)
        for each in others:
            with suppress(ConnectionLost):
                return await AsyncConnection.open(each, timeout_s=self._timeout_s)
        return await AsyncConnection.open(last, timeout_s=self._timeout_s)

    # ---- tasks ----------------------------------------------------------------------------------

    def _spawn(self, coroutine: Coroutine[None, None, None], *, name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """End with a bug, which is raised in the application."""
        self.failure = error
        self._hang_up()
        self._changed()
