"""The asyncio producer over Thrift: many sends under way, each key's in order.

As with ``Producer``, a message is sent again under the same ID until it is stored or times out.
``send_pipeline`` has the rules of order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from thin_client import forks
from thin_client.aio_checker import AsyncChecker
from thin_client.aio_sender import AsyncSender
from thin_client.arguments import check_count
from thin_client.base_producer import BaseProducer, SendOptions
from thin_client.base_transaction import BaseTransaction
from thin_client.delivery import Delivery, Outgoing
from thin_client.errors import SendFailed
from thin_client.event_loops import is_elsewhere
from thin_client.servers import Tls
from thin_client.tracing import Tracer
from thin_client.transactions import Transactions

_log = logging.getLogger("orderlane")

_ELSEWHERE = (
    "the producer is in use in another event loop: use it there, or create another producer"
)


class AsyncProducer(BaseProducer):
    """Send messages on asyncio, those of different keys in parallel, those of one key in order.

    Tasks may share a producer. ``send`` waits until its message is stored; ``enqueue`` only while
    too many messages are under way, and the end of the scope waits for all of them::

        async with AsyncProducer("proxy:9713") as producer:
            await producer.send("orders", b'{"id": 7}', key="customer-7")
            for order in orders:
                await producer.enqueue("orders", order.body, key=order.customer)

    A key's messages are stored in the order of the calls: one goes out when the one before it is
    stored, or behind it in the same request. Messages of several calls share a request, and several
    requests are under way at a time. When a send fails or is cancelled, sends of its key that were
    made before fail too, so that they do not overtake a message that is sent again; later ones are
    sent.

    In another event loop, such as that of a second ``asyncio.run``, and in a forked process the
    producer opens other connections. While its former loop runs, in another thread, or has sends
    under way, sends in another one raise RuntimeError: create a producer for each loop.

    Args:
        servers: ``host:port``, several separated by commas, or a list.
        timeout_s: time for which a send is retried, in seconds; default 10.
        max_in_flight: maximum number of messages under way; further calls wait, in their order.
            Default 1000. There may be 64 MB of them at most.
        token: access token, if the proxy requires one.
        tls: TLS settings; None (default): no TLS.
        tracer: adds trace properties to messages.
        transactions: group and check of the producer's transactions; None (default): none. While
            the producer is open, from its ``async with`` or its first transaction on, a task
            answers the checks of the group.

    Raises ValueError for an invalid address or certificate, and TypeError for an option of a wrong
    type.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        timeout_s: float = 10.0,
        max_in_flight: int = 1000,
        token: str | None = None,
        tls: Tls | None = None,
        tracer: Tracer | None = None,
        transactions: Transactions | None = None,
    ) -> None:
        super().__init__(
            servers,
            timeout_s=timeout_s,
            token=token,
            tls=tls,
            tracer=tracer,
            transactions=transactions,
        )
        check_count("max_in_flight", max_in_flight, least=1)
        self._max_in_flight = max_in_flight
        self._sender: AsyncSender | None = None
        self._checker: AsyncChecker | None = None
        # Messages that were not awaited: those under way, and those that failed.
        self._enqueued: set[Enqueued] = set()
        self._failed: dict[Enqueued, SendFailed] = {}
        forks.register(self)

    def forked(self) -> None:
        """In a child process: begin again, with connections of its own.

        Pending calls are forgotten: they belong to the parent's tasks.
        """
        self._sender = self._checker = None
        self._enqueued = set()
        self._failed = {}
        self._running.clear()

    async def __aenter__(self) -> Self:
        self._answer_checks()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            await self.close()
        except SendFailed as error:
            if kind is None:
                raise
            _log.warning("messages of enqueue were not stored: %s", error)

    async def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        key: str | None = None,
        sharding_key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_path: str | None = None,
        queue: int | str | None = None,
        delay_s: float | None = None,
    ) -> str:
        """Store one message; see ``Producer.send``.

        Cancelling it leaves unknown whether the message is stored.
        """
        message = Outgoing(
            topic, body, key, sharding_key, tag, properties or {}, sharding_path, queue, delay_s
        )
        return (await self.send_batch([message]))[0]

    async def send_batch(self, messages: Sequence[Outgoing]) -> list[str]:
        """Store *messages*; see ``Producer.send_batch``."""
        requests = self._deliveries(messages)
        ids = [message_id for request in requests for message_id in request.message_ids]
        if requests:
            await self._stored(requests)
        return ids

    async def enqueue(
        self, topic: str, body: bytes | str, **options: Unpack[SendOptions]
    ) -> Enqueued:
        """Queue one message (arguments: those of ``send``), and return while it is under way.

        Waits while ``max_in_flight`` messages are under way. Await the result for the message's ID,
        or not: ``close`` waits for all messages, and raises the failures that were not awaited.

        Raises ValueError or TypeError for an invalid message, and SendFailed, without queueing it,
        once ``max_in_flight`` earlier messages have failed and were not awaited.
        """
        if len(self._failed) >= self._max_in_flight:
            raise self._failures()
        (request,) = requests = self._deliveries([Outgoing(topic, body, **options)])
        enqueued = Enqueued(request.message_ids[0], self._enqueued, self._failed)
        await self._in_this_loop().begin(requests, enqueued.end)
        self._enqueued.add(enqueued)
        return enqueued

    async def send_delayed(
        self,
        topic: str,
        body: bytes | str,
        *,
        delay_s: float,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """Store a delayed message; see ``Producer.send_delayed``."""
        message = Outgoing(topic, body, key, tag=tag, properties=properties or {}, delay_s=delay_s)
        (request,) = requests = self._deliveries([message])
        await self._stored(requests)
        return request.delay_id or request.message_ids[0]

    async def cancel(self, topic: str, delay_id: str) -> None:
        """Cancel a delayed message; see ``Producer.cancel``."""
        await self._stored([self._cancellation(topic, delay_id)])

    def transaction(
        self,
        topic: str,
        body: bytes | str,
        *,
        key: str | None = None,
        sharding_key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_path: str | None = None,
        queue: int | str | None = None,
    ) -> AsyncTransaction:
        """Return an ``async with`` block whose message consumers see only if the block ends
        normally; see ``Producer.transaction``::

            async with producer.transaction("invoices", b"...", key="customer-7") as transaction:
                await book(transaction.message_id)

        A cancelled block leaves the outcome to the check, as any exception does.
        """
        message = Outgoing(
            topic, body, key, sharding_key, tag, properties or {}, sharding_path, queue
        )
        return AsyncTransaction(
            self._preparation(message),
            ending=self._ending,
            running=self._running,
            send=self._stored,
            answer_checks=self._answer_checks,
        )

    def close(self) -> Closing:
        """Close the connections once all sends have ended; ``await`` it to wait for that. Checks of
        transactions are no longer answered.

        Awaiting raises SendFailed if messages of ``enqueue`` failed and were not awaited. Another
        send opens new connections. Raises RuntimeError outside of the event loop with the sends,
        while that loop runs.
        """
        self._check_loop()
        checker, self._checker = self._checker, None
        if checker is not None:
            checker.close()
        if self._sender is not None:
            self._sender.close()
            self._end_with(self._sender)
        return Closing(partial(self._drain, checker))

    async def _drain(self, checker: AsyncChecker | None) -> None:
        if checker is not None and checker.loop is asyncio.get_running_loop():
            await checker.ended()
        sender = self._sender
        if sender is not None and sender.loop is asyncio.get_running_loop():
            await sender.finished()
        if self._failed:
            raise self._failures()

    def _failures(self) -> SendFailed:
        """Return, and forget, the failures that were not awaited, as one error."""
        errors = list(self._failed.values())
        self._failed.clear()
        first, *others = errors
        return SendFailed(
            f"{first}; {len(others)} more failed" if others else str(first),
            code=first.code,
            failures={id_: why for error in errors for id_, why in error.failures.items()},
            outcome_unknown=any(error.outcome_unknown for error in errors),
        )

    async def _stored(self, requests: list[Delivery]) -> None:
        sender = self._in_this_loop()
        done: asyncio.Future[None] = sender.loop.create_future()
        send = await sender.begin(requests, partial(_end, done))
        try:
            await done
        except asyncio.CancelledError:
            sender.cancel(send)
            raise
        finally:
            del done  # a failure would refer to this frame

    def _answer_checks(self) -> None:
        """Begin to answer checks of transactions in the running loop, if there are any."""
        options, rounds = self._transactions, self._check_rounds()
        if options is None or rounds is None:
            return
        checker = self._checker
        if checker is None or checker.loop is not asyncio.get_running_loop():
            self._check_loop()
            if checker is not None and checker.loop.is_closed():
                checker.close()
            self._checker = AsyncChecker(rounds, self._check_servers, options.check)

    def _check_loop(self) -> None:
        """Raise RuntimeError while another event loop has connections of the producer and runs."""
        for each in (self._sender, self._checker):
            if each is not None and each.loop.is_running() and is_elsewhere(each.loop):
                raise RuntimeError(_ELSEWHERE)

    def _in_this_loop(self) -> AsyncSender:
        """Return the sender of the running loop: a connection of another one gets no answers."""
        loop = asyncio.get_running_loop()
        sender = self._sender
        if sender is None or sender.loop is not loop:
            self._check_loop()
            if sender is not None and sender.loop.is_closed():
                sender.release()
                self._end_with(sender)
            elif sender is not None and not sender.idle:
                raise RuntimeError(_ELSEWHERE)  # its sends of a key would be overtaken
            sender = self._sender = AsyncSender(
                self._servers, max_in_flight=self._max_in_flight, paused=self._paused
            )
        return sender

    def _end_with(self, sender: AsyncSender) -> None:
        """Fail the messages of ``enqueue`` that are under way if the loop of *sender* is closed."""
        if sender.loop.is_closed():
            for each in list(self._enqueued):
                failures = {each.message_id: "its event loop was closed before the answer"}
                text = (
                    f"message {each.message_id} may have been stored: {failures[each.message_id]}"
                )
                each.end(SendFailed(text, code=None, failures=failures, outcome_unknown=True))

    def _paused(self, request: Delivery) -> None:
        """Take note of a request that will be sent again; for histories."""


class Enqueued:
    """A message under way; awaiting it returns its ID once it is stored, or raises SendFailed."""

    def __init__(
        self, message_id: str, under_way: set[Enqueued], failed: dict[Enqueued, SendFailed]
    ) -> None:
        """The producer's messages that were not awaited: *under_way*, and *failed*."""
        self.message_id = message_id
        self._under_way = under_way
        self._failed = failed
        self._awaited = False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        state = "ended" if self.done else "under way"
        return f"<Enqueued {self.message_id}, {state}>"

    @property
    def done(self) -> bool:
        """True once the message is stored or has failed."""
        return self._done.done()

    def end(self, error: Exception | None) -> None:
        """Record the outcome. Called by the producer."""
        self._under_way.discard(self)
        _end(self._done, error)
        if isinstance(error, SendFailed) and not self._awaited:
            self._done.exception()  # close() reports it, instead of the event loop
            self._failed[self] = error

    def __await__(self) -> Generator[Any, None, str]:
        self._awaited = True
        self._under_way.discard(self)
        self._failed.pop(self, None)
        yield from asyncio.shield(self._done).__await__()
        return self.message_id


class AsyncTransaction(BaseTransaction):
    """The ``async with`` block of ``AsyncProducer.transaction``; ``message_id`` is the id of its
    message.
    """

    def __init__(
        self,
        prepared: Delivery,
        *,
        ending: Callable[[Delivery, bool], Delivery],
        running: set[str],
        send: Callable[[list[Delivery]], Coroutine[Any, Any, None]],
        answer_checks: Callable[[], None],
    ) -> None:
        """Called by the producer."""
        super().__init__(prepared, ending=ending, running=running)
        self._send = send
        self._answer_checks = answer_checks

    async def __aenter__(self) -> Self:
        requests = self._enter()
        try:
            self._answer_checks()
            await self._send(requests)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if requests := self._commit(error):
                await self._send(requests)
        finally:
            self._leave()

    async def rollback(self) -> None:
        """Drop the message; the block goes on, and its end does nothing more.

        May be repeated. Raises SendFailed if that is not confirmed: the check decides then.
        RuntimeError outside of the block.
        """
        if requests := self._rollback():
            await self._send(requests)
        self._rolled_back()


class Closing:
    """Result of ``AsyncProducer.close``: await it to wait for the sends, or ignore it."""

    def __init__(self, drain: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._drain = drain

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._drain().__await__()


def _end(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
