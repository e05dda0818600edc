"""Threads in virtual time: one runs at a time, and the loop stands still while it runs.

A function given to ``asyncio.to_thread`` runs in a thread of its own until it waits: for a
connection, in ``time.sleep``, or for ``asyncio.run``. Then the loop continues, and resumes the
thread when the wait is over. Locks and queues between such threads are not simulated.
"""

from __future__ import annotations

import asyncio
import contextvars
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

if TYPE_CHECKING:
    from testkit.simulation.loop import SimulatedLoop

T = TypeVar("T")

_real_socket = socket.socket
_real_sleep = time.sleep
_real_run = asyncio.run
_real_select = select.select
_real_wrap = ssl.SSLContext.wrap_socket
_here = threading.local()


class _Ended(BaseException):
    """Raised in a thread that still waits when its loop is closed."""


class Threads:
    """The threads of *loop*; idle ones are reused."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self._idle: deque[_Thread] = deque()
        self._all: list[_Thread] = []

    def call(self, function: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        """Run *function* until it waits or ends; *done* receives its value and error at the end."""
        if not self._idle:
            self._idle.append(_Thread(self))
            self._all.append(self._idle[-1])
        self._idle.pop().begin(function, done)

    def idle(self, thread: _Thread) -> None:
        """Return *thread* to the idle ones."""
        self._idle.append(thread)

    def close(self) -> None:
        """End all threads; waiting ones get an exception."""
        for thread in self._all:
            thread.end()


class _Thread:
    def __init__(self, threads: Threads) -> None:
        self.loop = threads.loop
        self._threads = threads
        self._own_turn = threading.Semaphore(0)
        self._loops_turn = threading.Semaphore(0)
        self._work: Callable[[], None] | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._main, name="simulated", daemon=True)
        self._thread.start()

    def begin(self, function: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        """See ``Threads.call``; called in the loop."""

        def work() -> None:
            try:
                value = function()
            except _Ended:
                raise
            except BaseException as error:
                done(None, error)
            else:
                done(value, None)

        self._work = work
        self._give_turn()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Let the loop run until it has completed *coroutine*; called in the thread."""
        if self._ending:
            coroutine.close()
            raise _Ended
        context = contextvars.copy_context()
        task = self.loop.create_task(coroutine, context=context)
        task.add_done_callback(lambda _: self._give_turn())
        self._loops_turn.release()
        self._own_turn.acquire()
        if self._ending:
            raise _Ended
        return task.result()

    def end(self) -> None:
        """End the thread; called in the loop."""
        self._ending = True
        self._own_turn.release()
        self._thread.join()

    def _give_turn(self) -> None:
        if not self._ending:
            self._own_turn.release()
            self._loops_turn.acquire()

    def _main(self) -> None:
        _here.thread = self
        while True:
            self._own_turn.acquire()
            if self._work is None or self._ending:
                return
            try:
                self._work()
            except _Ended:
                return
            self._work = None
            self._threads.idle(self)
            self._loops_turn.release()


def _current() -> _Thread | None:
    return getattr(_here, "thread", None)


@contextmanager
def simulated_waits(loop: SimulatedLoop) -> Iterator[None]:
    """Redirect sockets, sleeps and ``asyncio.run`` of simulated threads to *loop*, and
    ``time.monotonic`` to its time.
    """
    with ExitStack() as stack:
        for owner, name, ours in (
            (time, "monotonic", loop.time),
            (time, "monotonic_ns", lambda: loop.now_ns),
            (socket, "socket", _Socket),
            (time, "sleep", _sleep),
            (select, "select", _select),
            (asyncio, "run", _run),
            (ssl.SSLContext, "wrap_socket", _wrap_socket),
        ):
            stack.enter_context(mock.patch.object(owner, name, ours))
        yield


def _sleep(seconds: float) -> None:
    thread = _current()
    if thread is None:
        _real_sleep(seconds)
    else:
        thread.wait(asyncio.sleep(seconds))


def _select(read: Any, write: Any, wrong: Any, seconds: float | None = None) -> Any:
    if _current() is None or read or write or wrong or seconds is None:
        return _real_select(read, write, wrong, seconds)
    _sleep(seconds)
    return [], [], []


def _run(main: Coroutine[Any, Any, T], **options: Any) -> T:
    thread = _current()
    return _real_run(main, **options) if thread is None else thread.wait(main)


def _wrap_socket(context: ssl.SSLContext, sock: Any, *args: Any, **options: Any) -> Any:
    if not isinstance(sock, SimulatedSocket):
        return _real_wrap(context, sock, *args, **options)
    sock.start_tls(context, options.get("server_hostname"))
    return sock


class _Socket(_real_socket):
    """A real socket, or a simulated one in a simulated thread."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        thread = _current()
        if thread is None or options.get("fileno") is not None:
            return super().__new__(cls, *args, **options)
        return SimulatedSocket(thread)


class SimulatedSocket:
    """A blocking TCP socket of a simulated thread."""

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, 0

    def __init__(self, thread: _Thread) -> None:
        self._thread = thread
        self._timeout_s: float | None = socket.getdefaulttimeout()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._io_refs = 0
        self._closed = False

    def __enter__(self) -> SimulatedSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settimeout(self, seconds: float | None) -> None:
        self._timeout_s = seconds

    def gettimeout(self) -> float | None:
        return self._timeout_s

    def setblocking(self, blocking: bool) -> None:
        self._timeout_s = None if blocking else 0.0

    def setsockopt(self, *_: object) -> None:
        """Do nothing: options are not simulated."""

    def connect(self, address: Any) -> None:
        host, port = address[:2]
        self._reader, self._writer = self._wait(asyncio.open_connection(host, port))

    def start_tls(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """Switch to TLS as a client."""
        assert self._writer is not None
        self._wait(self._writer.start_tls(context, server_hostname=server_hostname))

    def getpeercert(self, binary_form: bool = False) -> Any:
        assert self._writer is not None
        return self._writer.get_extra_info("ssl_object").getpeercert(binary_form)

    def getpeername(self) -> Any:
        assert self._writer is not None
        return self._writer.get_extra_info("peername")

    def getsockname(self) -> Any:
        assert self._writer is not None
        return self._writer.get_extra_info("sockname")

    def sendall(self, data: Any, flags: int = 0) -> None:
        if self._writer is None or self._writer.is_closing():
            raise BrokenPipeError
        self._writer.write(bytes(data))
        self._wait(self._writer.drain())

    def send(self, data: Any, flags: int = 0) -> int:
        self.sendall(data)
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        assert self._reader is not None
        return self._wait(self._reader.read(size))

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        data = self.recv(size or len(buffer))
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def makefile(self, *args: Any, **options: Any) -> Any:
        return _real_socket.makefile(self, *args, **options)  # type: ignore[arg-type]

    def shutdown(self, how: int) -> None:
        if self._writer is not None and how != socket.SHUT_RD:
            self._writer.close()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._closed = True
        if self._io_refs <= 0:
            self._real_close()

    def _decref_socketios(self) -> None:
        self._io_refs -= self._io_refs > 0
        if self._closed:
            self.close()

    def _real_close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        async def within() -> T:
            async with asyncio.timeout(self._timeout_s):
                return await coroutine

        try:
            return self._thread.wait(within())
        except TimeoutError as error:
            if error.errno is not None:
                raise
            raise TimeoutError("timed out") from None
