"""The blocking consumer: runs a ``Session`` with threads, as ``aio`` does with tasks.

One thread pulls; for each proxy that holds leases another settles and extends. One lock guards all
state; threads wait on separate conditions of it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from thin_client.base_consumer import BaseConsumer
from thin_client.clock import now_ns
from thin_client.feeder import Feeder
from thin_client.handlers import (
    PlainBatchHandler,
    PlainHandler,
    check_plain_handler,
    check_result,
)
from thin_client.key_batch import KeyBatch
from thin_client.loop_signals import SIGNALS, FormerHandlers
from thin_client.message import (
    Defer,
    Message,
    NotSettled,
    Outcome,
    log_failure,
    outcome_name,
)
from thin_client.options import (
    overridden,
)
from thin_client.session import Session
from thin_client.tracing import Handling, Tracer

T = TypeVar("T")
H = TypeVar("H", Message, KeyBatch)  # a handler's argument


class Consumer(BaseConsumer):
    """Consume the messages of a group, in order by key, and ack each when it is handled.

    ``run`` handles messages of different keys in ``concurrency`` threads::

        Consumer("proxy:9713", group="billing", topics=["orders"]).run(charge)  # until SIGTERM

    The iterator returns one message at a time; the end of the message's scope acks it::

        with Consumer("proxy:9713", group="billing", topics=["orders"]) as consumer:
            for message in consumer:
                with message:
                    charge(message.json())

    Instead of the scope, ``message.ack()``, ``nack(after_s=...)`` or ``reject(reason)`` settle it.
    Requesting the next message before the scope of the last one has ended raises RuntimeError: the
    next message of its key would never arrive.

    Options and errors are those of ``BaseConsumer``, as for ``AsyncConsumer``. The observer is
    called in the threads.
    """

    def _prepare(self) -> None:
        self._session = Session(self._options)
        self._lock = threading.RLock()
        self._message_or_end = threading.Condition(self._lock)
        self._heard = overridden(self._observer, "on_handle_start", "on_handle_end")
        self._draining = self._hard = False
        self._idle = 0  # threads that wait for a message
        self._waking = False  # one of them was woken and has not run yet
        self._progress = threading.Condition(self._lock)
        self._feeder: Feeder = Feeder(
            self._session,
            self._servers,
            lock=self._lock,
            timing=self._timing,
            observer=self._observer,
            changed=self._turn,
        )

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._parent is None:
            self._drain()

    def stop(self) -> None:
        """Stop pulling; ``run`` and the iterator end once all running handlers have finished.

        After a second call they do not wait for handlers. May be called from any thread.
        """
        with self._lock:
            self._hard = self._draining
            self._session.stop(now_ns())
            self._turn()

    # ---- parallel handlers ----------------------------------------------------------------------

    def run(self, handler: PlainHandler, *, handle_signals: bool = True) -> None:
        """Handle messages in ``concurrency`` threads until ``stop``, SIGTERM or SIGINT.

        A message is acked when *handler* returns; a result that represents unstarted work, such as
        an awaitable, means retry. A handler raises Retry, Reject or Defer for another verdict; any
        other exception is logged and means retry. ``sys.exit()``, or another exception that is no
        Exception, also means retry; it stops the consumer and is raised here after the drain. A
        handler still running after the drain time-out is abandoned: its message waits until the
        lease expires.

        Raises TypeError before the first pull for a handler that is a coroutine function, a
        generator function or a class, and Refused and other errors that are not retriable.
        """
        check_plain_handler(handler)
        self._run(lambda: self._work(handler), handle_signals=handle_signals)

    def run_batches(self, handler: PlainBatchHandler, *, handle_signals: bool = True) -> None:
        """Handle batches of up to ``max_run`` messages of one order key; otherwise as ``run``.

        *handler* takes a KeyBatch, which describes the verdicts on its messages.
        """
        check_plain_handler(handler)
        self._run(lambda: self._work_on_batches(handler), handle_signals=handle_signals)

    def _run(self, work: Callable[[], None], *, handle_signals: bool) -> None:
        with self._signals() if handle_signals else contextlib.nullcontext():
            self._start()
            try:
                for number in range(self._session.options.concurrency):
                    name = f"orderlane handler {number}"
                    threading.Thread(target=work, name=name, daemon=True).start()
                with self._lock:
                    # Repeated short waits: an endless wait would block Python's signal handlers.
                    while not self._session.stopping:
                        self._progress.wait(0.5)
            finally:
                self._drain()
        self._raise_failure()

    def _work(self, handler: PlainHandler) -> None:
        """Handle messages one by one; settling one and taking the next share one lock."""
        handle: Callable[[Message], object] = handler
        if self._tracer is not None:
            handle = _traced(handler, self._tracer)
        message = self._next(self._take)
        while message is not None:
            if self._heard:
                self._observer.on_handle_start(message)
            outcome: Outcome = None
            try:
                result = handle(message)
                if result is not None:
                    check_result(result)
            except BaseException as error:  # none may silently end this thread alone
                outcome = error
                self._failed(message, error)
            if self._heard:
                # Before settling: then another thread may start the key's next message.
                self._observer.on_handle_end(message, outcome_name(outcome))
            with self._lock:
                self._session.settle(message, outcome, now_ns())
                # A failure refers to this frame, and so would keep the message.
                message = outcome = None
                message = self._next(self._take)

    def _work_on_batches(self, handler: PlainBatchHandler) -> None:
        handle = handler if self._tracer is None else _traced(handler, self._tracer)
        while messages := self._next(self._take_batch):
            batch = KeyBatch(messages, self._observer)
            outcome: Outcome = None
            try:
                check_result(handle(batch))
            except BaseException as error:
                outcome = error
                self._failed(batch.at_work, error)
            batch.end(outcome)
            with self._lock:
                self._session.settle_batch(messages, batch.done, outcome, now_ns())
                del messages, batch, outcome
                self._turn()

    def _failed(self, message: Message, error: BaseException) -> None:
        """Log a handler's error; stop the consumer if it is not an Exception (SystemExit)."""
        log_failure(message, error, group=self._options.group)
        if not isinstance(error, Exception):
            with self._lock:
                self._exit = self._exit or error
                if not self._session.stopping:
                    self.stop()

    # ---- the iterator ---------------------------------------------------------------------------

    def __iter__(self) -> Self:
        if not self._started:
            raise RuntimeError("the consumer is not started: use 'with' around the loop")
        return self

    def __next__(self) -> Message:
        """Return the next message.

        Raises RuntimeError if this thread has not settled its previous message, or if one has ended
        whose message is in no scope, or if another process started the consumer.
        """
        self._check_process()
        me = threading.current_thread()
        for taken, thread in list(self._yielded.items()):
            if thread is me or (_has_ended(thread) and taken.unentered):
                raise NotSettled(taken, "with")
        message = self._next(self._take)
        if message is None:
            self._raise_failure()
            raise StopIteration
        message.attach(self._settle_yielded)
        self._yielded[message] = me
        self._observer.on_handle_start(message)
        return message

    # ---- taking, settling, draining -------------------------------------------------------------

    def _take(self) -> Message | None:
        return self._session.take(now_ns())

    def _take_batch(self) -> list[Message]:
        return self._session.take_batch(now_ns(), most=self._session.options.max_run)

    def _next(self, take: Callable[[], T]) -> T | None:
        """Wait until *take* returns messages, and return them; None after a stop."""
        session = self._session
        with self._lock:
            while not session.stopping:
                taken = take()
                if session.stirred:
                    self._feeder.turn()
                if taken:
                    if self._idle:
                        self._wake_one()
                    return taken
                self._idle += 1
                self._message_or_end.wait(0.5)  # short waits let signal handlers run
                self._idle -= 1
                self._waking = False
            if session.stirred:
                self._turn()
        return None

    def _wake_one(self) -> None:
        """Wake one waiting thread, which wakes the next: running ones may take all first."""
        if self._idle and not self._waking and self._session.takeable:
            self._waking = True
            self._message_or_end.notify()

    def _settle_yielded(self, message: Message, outcome: Outcome) -> None:
        self._check_process()
        self._settle(message, outcome)

    def _settle(self, message: Message, outcome: Outcome) -> None:
        log_failure(message, outcome, group=self._options.group)
        # Before settling: then another thread may start the key's next message.
        self._observer.on_handle_end(message, outcome_name(outcome))
        with self._lock:
            self._yielded.pop(message, None)
            self._session.settle(message, outcome, now_ns())
            self._turn()

    def _wake_all(self) -> None:
        self._message_or_end.notify_all()
        self._progress.notify_all()

    def _drain(self) -> None:
        """Let handlers finish, return other messages, send the verdicts, and close."""
        with self._lock:
            self._draining = True
            self._session.stop(now_ns())
            for message in list(self._yielded):
                if message.detach():
                    self._settle(message, Defer())
            self._turn()
            if not self._reached(lambda: self._session.drained, self._timing.drain_timeout_s):
                self._hard = False
                self._reached(lambda: self._session.flushed, self._timing.request_timeout_s)
        self._feeder.close()
        self._log_end()

    def _reached(self, condition: Callable[[], bool], limit_s: float) -> bool:
        deadline_ns = now_ns() + int(limit_s * 1e9)
        while not condition():
            left_s = (deadline_ns - now_ns()) / 1e9
            if left_s <= 0 or self._hard:
                return False
            self._progress.wait(min(left_s, 0.5))
        return True

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, frame: object) -> None:
            # In a thread: the interrupted code may hold the lock.
            threading.Thread(target=self.stop, name="orderlane stop").start()

        former: dict[int, Any] = {}
        with contextlib.suppress(ValueError):  # only the main thread may set signal handlers
            for number in SIGNALS:
                former[number] = signal.signal(number, handle)
        in_child = FormerHandlers(former) if former else None
        try:
            yield
        finally:
            del in_child
            for each, handler in former.items():
                signal.signal(each, handler)


def _has_ended(thread: object) -> bool:
    return isinstance(thread, threading.Thread) and not thread.is_alive()


def _traced(handler: Callable[[H], object], tracer: Tracer) -> Callable[[H], object]:
    def handle(taken: H) -> object:
        with Handling(tracer, taken if isinstance(taken, Message) else taken[0]):
            return handler(taken)

    return handle
