"""The asyncio consumer: hands the messages of a ``Session`` to handlers, and drains at the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from thin_client.aio_feeder import AsyncFeeder
from thin_client.aio_handlers import (
    ThreadGoesOn,
    being_cancelled,
    in_thread,
    to_the_end,
    traced,
)
from thin_client.base_consumer import BaseConsumer
from thin_client.clock import now_ns
from thin_client.handlers import BatchHandler, Handler, check_handler, is_coroutine_function
from thin_client.key_batch import KeyBatch
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

T = TypeVar("T", Message, KeyBatch)  # what one handler takes


class AsyncConsumer(BaseConsumer):
    """Pulls the messages of a consumer group, in order by key, and acks what was handled.

    ``run`` is the parallel form: messages of different keys are handled at the same time::

        consumer = AsyncConsumer("proxy:9713", group="billing", topics=["orders"], concurrency=64)
        await consumer.run(charge)  # until SIGTERM; an exception in charge means retry

    The iterator gives one message after the other; the end of the message's scope acks it::

        async with AsyncConsumer("proxy:9713", group="billing", topics=["orders"]) as consumer:
            async for message in consumer:
                async with message:
                    await charge(message.json())

    A loop that asks for the next message before the scope of the last one has ended raises
    RuntimeError, unless another task has entered that: nothing else of its key would ever come.

    *servers*: ``host:port``, several separated by commas, or a list; the next is tried when one
    fails. *topics*: None means every topic of the group. *concurrency*: messages handled at a time,
    8 by default. *prefetch*: messages that wait here meanwhile, as many by default; 0 leaves every
    waiting message to other clients. *max_run*: consecutive messages of one order key that may
    come together, to be handled one after the other; 1 by default. More makes a busy key faster: it
    needs no round trip a message. At the first that fails those behind it go back, unhandled and
    uncounted; *prefetch* is then twice as many by default. *client_id*: shown to operators.
    *token*: shown to proxies that ask for one. *tls*: how to trust the proxy; None (default): no
    TLS. *tracer*: surrounds handlers. Raises ValueError for options that make no sense.
    """

    def _prepare(self) -> None:
        self._session = Session(self._options)
        self._idle: deque[asyncio.Future[None]] = deque()  # wait for a message
        self._waking = False  # one of them was woken, and has not looked yet
        self._changed = asyncio.Event()
        self._drain_limit: asyncio.Timeout | None = None
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
            await self._drain([])

    @property
    def stopping(self) -> bool:
        """True once it pulls no more."""
        return self._session.stopping

    def stop(self) -> None:
        """Pull no more: ``run`` returns and the iterator ends when what is handled has ended.

        A second call ends what is still handled at once.
        """
        if self._session.stopping and self._drain_limit is not None:
            with contextlib.suppress(RuntimeError):  # it is just expiring
                self._drain_limit.reschedule(0)
        self._session.stop(now_ns())
        self._turn()

    # ---- the parallel form ----------------------------------------------------------------------

    async def run(self, handler: Handler, *, handle_signals: bool = True) -> None:
        """Handle messages, ``concurrency`` at a time, until ``stop``, SIGTERM or SIGINT.

        *handler* takes a message; it is a coroutine function, or a plain one, which is run in a
        thread. Its return acks; a result that can be awaited is awaited first, and one that stands
        for work that has not run, such as a generator, means retry. Retry, Reject and Defer say
        otherwise; any other exception is logged and means retry; ``sys.exit()`` besides stops the
        consumer, and is raised here once what is handled has ended. After the drain time-out
        coroutines are cancelled and their messages given back; threads cannot be, so their messages
        wait until their leases end. Cancelled, it drains as well; cancelled meanwhile, it ends at
        once, and what it held waits likewise. Raises TypeError before the first pull for a handler
        that is a generator function or a class.
        Raises Refused and others that no retry can help.
        """
        if overridden(self._observer, "on_handle_start", "on_handle_end"):
            await self._run(handler, self._take, self._settle, handle_signals=handle_signals)
        else:
            session = self._session
            await self._run(handler, session.take, session.settle, handle_signals=handle_signals)

    async def run_batches(self, handler: BatchHandler, *, handle_signals: bool = True) -> None:
        """As ``run``, with several messages of one order key at a time, ``max_run`` at most.

        *handler* takes a KeyBatch, which says what is acked when it returns, and when it raises.
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
                stack.enter_context(self._signals())
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
                    self._work(handle, take, settle), name=f"orderlane handler {number}"
                )
                for number in range(self._session.options.concurrency)
            ]
            try:
                await self._stopped()
            finally:
                await self._drain(workers)
        self._raise_failure()

    async def _work(
        self,
        handle: Callable[[T], Any],
        take: Callable[[int], T | None],
        settle: Callable[[T, Outcome, int], None],
    ) -> None:
        """One handler's life. It takes messages itself: a task for each would cost 5 µs more."""
        session, feeder = self._session, self._feeder
        at_ns = now_ns()
        while not session.stopping:
            taken = take(at_ns)
            if session.stirred:
                feeder.turn()
            if taken is None:
                await self._wait_for_message()
                at_ns = now_ns()
                continue
            if self._idle and not self._waking:
                self._wake_one()
            outcome: Outcome = None
            try:
                result = await handle(taken)
                if result is not None:
                    await to_the_end(result)
            except asyncio.CancelledError as error:
                if being_cancelled():
                    settle(taken, Defer(), now_ns())
                    self._turn()
                    raise
                outcome = error
            except ThreadGoesOn:
                return
            except Exception as error:
                outcome = error
            except SystemExit as error:  # others may still handle what they have
                outcome = self._exit = error
                if not session.stopping:
                    self.stop()
            if outcome is not None:
                log_failure(taken if isinstance(taken, Message) else taken.at_work, outcome)
            at_ns = now_ns()
            settle(taken, outcome, at_ns)
            if session.stirred:
                self._turn()
            if feeder.hurry:
                await asyncio.sleep(0)
                at_ns = now_ns()

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
        """Raises RuntimeError if this task has not settled the message that it took before, unless
        another task has entered its scope; or if another process started the consumer.
        """
        self._check_process()
        if self._yielded:
            await self._check_yielded()
        while not self._session.stopping:
            message = self._take(now_ns())
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
        if any(task is me and message.unentered for message, task in self._yielded.items()):
            await asyncio.sleep(0)  # a task that was just made for it enters it now
        for message, task in self._yielded.items():
            if task is me and (message.unentered or message.entered_by is me):
                raise NotSettled(message, "async with")

    # ---- inside ---------------------------------------------------------------------------------

    def _settle_batch(self, batch: KeyBatch, outcome: Outcome, at_ns: int) -> None:
        batch.end(outcome)
        self._session.settle_batch(batch, batch.done, outcome, at_ns)

    def _settle(self, message: Message, outcome: Outcome, at_ns: int) -> None:
        self._session.settle(message, outcome, at_ns)
        self._observer.on_handle_end(message, outcome_name(outcome))

    def _settle_yielded(self, message: Message, outcome: Outcome) -> None:
        self._check_process()
        log_failure(message, outcome)
        self._yielded.pop(message, None)
        self._settle(message, outcome, now_ns())
        self._turn()

    def _wake_all(self) -> None:
        while self._idle:
            _wake(self._idle.popleft())
        self._changed.set()

    def _wake_one(self) -> None:
        """Wake one, which wakes the next: those awake already may have taken all by then."""
        while self._idle and not self._waking and self._session.takeable > 0:
            self._waking = _wake(self._idle.popleft())

    async def _wait_for_message(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was woken for a message that another can take
                self._waking = False
                self._wake_one()
            raise
        self._waking = False

    async def _stopped(self) -> None:
        while not self._session.stopping:
            self._changed.clear()
            await self._changed.wait()

    async def _drain(self, workers: Sequence[asyncio.Task[None]]) -> None:
        """Finish what is handled, give back the rest, tell the proxy, and close."""
        try:
            await self._drain_in_time(workers)
            await self._feeder.close()
        except BaseException:  # cancelled again, perhaps at every turn: nothing can be awaited
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
                await asyncio.wait(workers)
            await self._reached(lambda: self._session.flushed, self._timing.request_timeout_s)

    async def _reached(self, condition: Callable[[], bool], limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s) as self._drain_limit:
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            self._drain_limit = None
        return True

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = []
        for number in (signal.SIGTERM, signal.SIGINT):
            # Only the main thread of a process may; elsewhere its owner calls stop().
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self.stop)
                handled.append(number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)


def _wake(waiter: asyncio.Future[None]) -> bool:
    """Wake a task; False if it was cancelled meanwhile."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True
