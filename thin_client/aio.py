"""The asyncio consumer: passes the messages of a ``Session`` to handlers, and drains at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from thin_client import clock
from thin_client.aio_feeder import AsyncFeeder
from thin_client.aio_handlers import (
    ThreadStillRuns,
    await_fully,
    in_thread,
    is_ending,
    traced,
)
from thin_client.base_consumer import BaseConsumer
from thin_client.clock import now_ns
from thin_client.event_loops import is_elsewhere
from thin_client.handlers import BatchHandler, Handler, check_handler, is_coroutine_function
from thin_client.key_batch import KeyBatch
from thin_client.loop_signals import stop_on_signals
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

T = TypeVar("T", Message, KeyBatch)  # a handler's argument
#: Time for cancelled handlers to end after the drain time-out, in seconds.
_GRACE_S = 3.0


class AsyncConsumer(BaseConsumer):
    """Consume the messages of a group, in order by key, and ack each when it is handled.

    ``run`` handles messages of different keys in parallel::

        consumer = AsyncConsumer("proxy:9713", group="billing", topics=["orders"], concurrency=64)
        await consumer.run(charge)  # until SIGTERM; an exception in charge means retry

    The iterator returns one message at a time; the end of the message's scope acks it::

        async with AsyncConsumer("proxy:9713", group="billing", topics=["orders"]) as consumer:
            async for message in consumer:
                async with message:
                    await charge(message.json())

    Instead of the scope, ``await message.ack()``, ``nack(after_s=...)`` or ``reject(reason)``
    settle it. The next pull takes the verdict along, so none of them waits.

    Requesting the next message before the scope of the last one has ended raises RuntimeError,
    unless another task has entered that scope: the next message of its key would never arrive.

    Options and errors are those of ``BaseConsumer``, as for ``Consumer``.
    """

    def _prepare(self) -> None:
        self._session = Session(self._options)
        self._idle: deque[asyncio.Future[None]] = deque()  # tasks that wait for a message
        self._waking = False  # one of them was woken and has not run yet
        self._changed = asyncio.Event()
        self._drain_timer: asyncio.TimerHandle | None = None  # of the wait that drains
        self._out_of_time = False
        self._feeder: AsyncFeeder = AsyncFeeder(
            self._session,
            self._servers,
            timing=self._timing,
            observer=self._observer,
            changed=self._turn,
        )

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._parent is None:
            self._check_loop()
            await self._drain([])

    @property
    def stopping(self) -> bool:
        """True once pulling has stopped."""
        return self._session.stopping

    def stop(self) -> None:
        """Stop pulling; ``run`` and the iterator end once all running handlers have finished.

        A second call cancels running handlers at once. May be called from any thread.
        """
        loop = self._feeder.loop
        if loop is not None and is_elsewhere(loop):
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self.stop)
            return
        if self._session.stopping and self._drain_timer is not None:
            self._end_wait()
        self._session.stop(now_ns())
        self._turn()

    # ---- parallel handlers ----------------------------------------------------------------------

    async def run(self, handler: Handler, *, handle_signals: bool = True) -> None:
        """Handle messages, ``concurrency`` at a time, until ``stop``, SIGTERM or SIGINT.

        *handler* takes a message. It is a coroutine function, or a plain function, which runs in a
        thread. The message is acked when it returns; an awaitable result is awaited first, and a
        result that represents unstarted work, such as a generator, means retry. A handler raises
        Retry, Reject or Defer for another verdict; any other exception is logged and means retry.
        ``sys.exit()``, or another exception that is no Exception, also means retry; it stops the
        consumer and is raised here after the drain.

        After the drain time-out coroutines are cancelled and their messages returned; threads
        cannot be cancelled, and a coroutine may ignore it for more than 3 seconds, so their
        messages wait until their leases expire. Cancelling ``run``
        drains too; cancelling it again ends it at once, and its messages wait likewise.

        Raises TypeError before the first pull for a handler that is a generator function or a
        class, and Refused and other errors that are not retriable.
        """
        if overridden(self._observer, "on_handle_start", "on_handle_end"):
            await self._run(handler, self._take, self._settle, handle_signals=handle_signals)
        else:
            session = self._session
            await self._run(handler, session.take, session.settle, handle_signals=handle_signals)

    async def run_batches(self, handler: BatchHandler, *, handle_signals: bool = True) -> None:
        """Handle batches of up to ``max_run`` messages of one order key; otherwise as ``run``.

        *handler* takes a KeyBatch, which describes the verdicts on its messages.
        """
        await self._run(
            handler, self._take_batch, self._settle_batch, handle_signals=handle_signals
        )

    async def _run(
        self,
        handler: Callable[[T], Awaitable[object] | None],
        take: Callable[[int], T | None],
        settle: Callable[[T, Outcome, int], None],
        *,
        handle_signals: bool,
    ) -> None:
        check_handler(handler)
        with contextlib.ExitStack() as stack:
            if handle_signals:
                stack.enter_context(stop_on_signals(self.stop))
            handle: Callable[[T], Any] = handler
            if not is_coroutine_function(handler):
                threads = ThreadPoolExecutor(self._session.options.concurrency, "orderlane")
                stack.callback(threads.shutdown, wait=False, cancel_futures=True)
                handle = in_thread(handler, threads)
            if self._tracer is not None:
                handle = traced(handle, self._tracer)
            self._start()
            loop = asyncio.get_running_loop()
            workers = [
                loop.create_task(
                    self._go_on(handle, take, settle), name=f"orderlane handler {number}"
                )
                for number in range(self._session.options.concurrency)
            ]
            for worker in workers:
                worker.add_done_callback(self._worker_ended)
            try:
                await self._stopped()
            finally:
                await self._drain(workers)
        self._raise_failure()

    async def _go_on(
        self,
        handle: Callable[[T], Any],
        take: Callable[[int], T | None],
        settle: Callable[[T, Outcome, int], None],
    ) -> None:
        """Work until the consumer stops, also if a handler cancelled this task belatedly."""
        while True:
            try:
                return await self._work(handle, take, settle)
            except asyncio.CancelledError:
                if await is_ending(self._is_ending):
                    raise

    def _is_ending(self) -> bool:
        return self._session.stopping

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        """Stop the consumer if *worker* ended before: a bug must not stop it silently."""
        if self._session.stopping:
            return
        error = None if worker.cancelled() else worker.exception()
        self._exit = error or RuntimeError(f"{worker.get_name()} ended before the consumer")
        self.stop()

    async def _work(
        self,
        handle: Callable[[T], Any],
        take: Callable[[int], T | None],
        settle: Callable[[T, Outcome, int], None],
    ) -> None:
        """Handle messages one by one. A task for each message would cost 5 µs more."""
        session, feeder, read_ns = self._session, self._feeder, clock.reader()
        at_ns = read_ns()
        while not session.stopping:
            taken = take(at_ns)
            if session.stirred:
                feeder.turn()
            if taken is None:
                await self._wait_for_message()
                at_ns = read_ns()
                continue
            if self._idle and not self._waking:
                self._wake_one()
            outcome: Outcome = None
            try:
                result = await handle(taken)
                if result is not None:
                    await await_fully(result)
            except asyncio.CancelledError as error:
                if await is_ending(self._is_ending):
                    settle(taken, Defer(), now_ns())
                    self._turn()
                    raise
                outcome = error
            except ThreadStillRuns:
                return
            except Exception as error:
                outcome = error
            except GeneratorExit:  # the loop has ended: nothing can be awaited
                raise
            except BaseException as error:  # other handlers may finish their messages
                outcome = self._exit = error
                if not session.stopping:
                    self.stop()
            if outcome is not None:
                failed = taken if isinstance(taken, Message) else taken.at_work
                log_failure(failed, outcome, group=self._options.group)
                del failed
            at_ns = read_ns()
            settle(taken, outcome, at_ns)
            # A failure refers to this frame, and so would keep the message.
            taken = outcome = result = None
            if session.stirred:
                self._turn()
            if feeder.pulled and feeder.should_yield() and session.takeable:
                await asyncio.sleep(0)
                at_ns = read_ns()

    def _take(self, at_ns: int) -> Message | None:
        message = self._session.take(at_ns)
        if message is not None:
            self._observer.on_handle_start(message)
        return message

    def _take_batch(self, at_ns: int) -> KeyBatch | None:
        messages = self._session.take_batch(at_ns, most=self._session.options.max_run)
        return KeyBatch(messages, self._observer) if messages else None

    # ---- the iterator ---------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        if not self._started:
            raise RuntimeError("the consumer is not started: use 'async with' around the loop")
        return self

    async def __anext__(self) -> Message:
        """Return the next message.

        Raises RuntimeError if this task, or one that has ended, has not settled its previous
        message, unless another task has entered its scope, or if another process or event loop
        started the consumer.
        """
        self._check_process()
        self._check_loop()
        if self._yielded:
            await self._check_yielded()
        while not self._session.stopping:
            message = self._take(now_ns())
            if self._session.stirred:
                self._feeder.turn()
            if message is not None:
                self._wake_one()
                message.attach(self._settle_yielded)
                self._yielded[message] = asyncio.current_task()
                return message
            await self._wait_for_message()
        self._raise_failure()
        raise StopAsyncIteration

    async def _check_yielded(self) -> None:
        me = asyncio.current_task()
        if any(map(self._is_left, self._yielded)):
            await asyncio.sleep(0)  # lets a task that was just created enter the scope
        for message, task in self._yielded.items():
            if self._is_left(message) or (task is me and message.entered_by is me):
                raise NotSettled(message, "async with")

    def _is_left(self, message: Message) -> bool:
        """Return whether nothing has entered the scope of *message*, and its task is this one, or
        has ended: then no other step would report it.
        """
        task = self._yielded[message]
        is_ours = task is asyncio.current_task() or (isinstance(task, asyncio.Task) and task.done())
        return is_ours and message.unentered

    # ---- settling, waking, draining --------------------------------------------------------------

    def _settle_batch(self, batch: KeyBatch, outcome: Outcome, at_ns: int) -> None:
        batch.end(outcome)
        self._session.settle_batch(batch, batch.done, outcome, at_ns)

    def _settle(self, message: Message, outcome: Outcome, at_ns: int) -> None:
        self._session.settle(message, outcome, at_ns)
        self._observer.on_handle_end(message, outcome_name(outcome))

    def _check_loop(self) -> None:
        """Raise RuntimeError outside of the consumer's event loop."""
        if self._feeder.loop is not None and is_elsewhere(self._feeder.loop):
            raise RuntimeError(
                "the consumer was started in another event loop: use it there, or create another"
                " consumer"
            )

    def _settle_yielded(self, message: Message, outcome: Outcome) -> None:
        self._check_process()
        loop = self._feeder.loop
        if loop is not None and is_elsewhere(loop):
            loop.call_soon_threadsafe(self._settle_yielded, message, outcome)
            return
        log_failure(message, outcome, group=self._options.group)
        self._yielded.pop(message, None)
        self._settle(message, outcome, now_ns())
        self._turn()

    def _wake_all(self) -> None:
        while self._idle:
            _wake(self._idle.popleft())
        self._changed.set()

    def _wake_one(self) -> None:
        """Wake one waiting task, which wakes the next: running ones may take all first."""
        while self._idle and not self._waking and self._session.takeable > 0:
            self._waking = _wake(self._idle.popleft())

    async def _wait_for_message(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was woken for a message that another task can take
                self._waking = False
                self._wake_one()
            raise
        self._waking = False

    async def _stopped(self) -> None:
        while not self._session.stopping:
            self._changed.clear()
            await self._changed.wait()

    async def _drain(self, workers: Sequence[asyncio.Task[None]]) -> None:
        """Let handlers finish, return other messages, send the verdicts, and close."""
        try:
            await self._drain_in_time(workers)
            await self._feeder.close()
            self._log_end()
        except BaseException:  # cancelled again, perhaps at every await: nothing can be awaited
            for worker in workers:
                worker.cancel()
            self._feeder.abandon()
            raise

    async def _drain_in_time(self, workers: Sequence[asyncio.Task[None]]) -> None:
        self._session.stop(now_ns())
        for message in list(self._yielded):
            if message.detach():
                self._settle_yielded(message, Defer())
        self._turn()
        if not await self._reached(lambda: self._session.drained, self._timing.drain_timeout_s):
            for worker in workers:
                worker.cancel()
            if workers:
                await asyncio.wait(workers, timeout=_GRACE_S)
            await self._reached(lambda: self._session.flushed, self._timing.request_timeout_s)

    async def _reached(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for *condition*; return False after *limit_s*, or once ``stop`` is called again.

        It also drains tasks that were cancelled. There ``asyncio.timeout`` of Python before 3.11.3
        cancels the task once more instead of raising TimeoutError.
        """
        self._out_of_time = False
        self._drain_timer = asyncio.get_running_loop().call_later(limit_s, self._end_wait)
        try:
            while not condition():
                if self._out_of_time:
                    return False
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._drain_timer.cancel()
            self._drain_timer = None
        return True

    def _end_wait(self) -> None:
        self._out_of_time = True
        self._changed.set()


def _wake(waiter: asyncio.Future[None]) -> bool:
    """Wake a task; return False if it was cancelled."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True
