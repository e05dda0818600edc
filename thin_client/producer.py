"""The blocking producer over Thrift.

A message is sent again under the same ID until it is stored or times out, so it may be stored
twice; consumers recognize duplicates by ``message_id``. Calls are sent one at a time, in the order
in which they are made. When one fails, waiting calls with messages of its keys fail too, unsent, so
that they do not overtake messages that the application sends again. Later calls are sent.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from thin_client import chance, forks
from thin_client.base_producer import BaseProducer
from thin_client.base_transaction import BaseTransaction
from thin_client.checker import Checker
from thin_client.clock import now_ns
from thin_client.connection import Connection
from thin_client.delivery import Delivery, Outgoing
from thin_client.encoded_requests import EncodedRequests
from thin_client.errors import ClientError, SendFailed
from thin_client.send_order import SendOrder
from thin_client.servers import Tls
from thin_client.tracing import Tracer
from thin_client.transactions import Transactions
from thin_client.turns import Turns


class Producer(BaseProducer):
    """Send messages. Threads may share a producer, and then wait for each other.

    A forked process gets its own connection::

        with Producer("proxy:9713") as producer:
            producer.send("orders", b'{"id": 7}', key="customer-7")

    Args:
        servers: ``host:port``, several separated by commas, or a list.
        timeout_s: time for which a send is retried, in seconds; default 10.
        token: access token, if the proxy requires one.
        tls: TLS settings; None (default): no TLS.
        tracer: adds trace properties to messages.
        transactions: group and check of the producer's transactions; None (default): none. While
            the producer is open, from its ``with`` or its first transaction on, a thread answers
            the checks of the group.

    Raises ValueError for an invalid address or certificate, and TypeError for an option of a wrong
    type.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        timeout_s: float = 10.0,
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
        if transactions is not None and inspect.iscoroutinefunction(transactions.check):
            raise TypeError(
                "check is an async def: expected a plain function, or use AsyncProducer"
            )
        self._order, self._turns = SendOrder(), Turns()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closes = 0  # calls of ``close``
        self._encoded = EncodedRequests()
        self._checker: Checker | None = None
        forks.register(self)

    def forked(self) -> None:
        """In a child process: begin again, with a connection of its own.

        Pending calls are forgotten: they belong to the parent's threads.
        """
        self._order, self._turns = SendOrder(), Turns()
        self._lock = threading.Lock()
        self._connection = self._checker = None
        self._running.clear()

    def __enter__(self) -> Self:
        self._answer_checks()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def send(
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
        """Store one message (arguments: see Outgoing) and return its ID.

        Raises SendFailed, or ValueError or TypeError for an invalid message.
        """
        message = Outgoing(
            topic, body, key, sharding_key, tag, properties or {}, sharding_path, queue, delay_s
        )
        return self.send_batch([message])[0]

    def send_batch(self, messages: Sequence[Outgoing]) -> list[str]:
        """Store *messages*, those of one sharding key in order, and return their IDs.

        Raises as ``send``; messages that are not in the error's ``failures`` are stored. Large
        batches are split into several requests; after a failed request no more are sent.
        """
        requests = self._deliveries(messages)
        ids = [message_id for request in requests for message_id in request.message_ids]
        self._send(requests)
        return ids

    def send_delayed(
        self,
        topic: str,
        body: bytes | str,
        *,
        delay_s: float,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """Store a message for delivery after *delay_s* to *delay_s* + 1 seconds; return the ID for
        ``cancel``.

        Raises as ``send``; SendFailed has code 33 if the brokers do not support the delay.
        """
        message = Outgoing(topic, body, key, tag=tag, properties=properties or {}, delay_s=delay_s)
        (request,) = requests = self._deliveries([message])
        self._send(requests)
        return request.delay_id or request.message_ids[0]

    def cancel(self, topic: str, delay_id: str) -> None:
        """Cancel the delivery of a message of ``send_delayed``.

        Raises SendFailed: code 30 if the message is no longer waiting, 18 if the brokers do not
        support recalls. ``outcome_unknown`` is True if an earlier try may have cancelled it.
        """
        self._send([self._cancellation(topic, delay_id)])

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
    ) -> Transaction:
        """Return a ``with`` block whose message consumers see only if the block ends normally
        (arguments: see Outgoing)::

            def was_booked(message: PreparedMessage) -> Decision:
                found = db.execute("SELECT 1 FROM bookings WHERE id = ?", [message.message_id])
                return Decision.COMMIT if found.fetchone() else Decision.ROLLBACK

            invoices = Transactions(group="billing", topics=["invoices"], check=was_booked)
            with Producer("proxy:9713", transactions=invoices) as producer:
                with producer.transaction("invoices", b"...", key="customer-7") as transaction:
                    with db:
                        db.execute("INSERT INTO bookings VALUES (?)", [transaction.message_id])

        Entering stores the message invisibly, and leaving commits it; ``rollback()`` drops it. An
        exception leaves the outcome to the check, as with RocketMQ: it does not prove that the work
        was not done, since a database may have committed and its answer be lost. Consumers do not
        see the message meanwhile.

        Messages of a key are in the order of their commits.

        Raises ValueError or TypeError for an invalid message, or a producer without
        ``transactions``. Entering raises SendFailed, and the work must not be done. Leaving raises
        SendFailed if the commit is not confirmed: with ``outcome_unknown`` the check decides,
        otherwise (code 72) the message was dropped before, because a check did not find the work,
        or after too many checks.
        """
        message = Outgoing(
            topic, body, key, sharding_key, tag, properties or {}, sharding_path, queue
        )
        return Transaction(
            self._preparation(message),
            ending=self._ending,
            running=self._running,
            send=self._send,
            answer_checks=self._answer_checks,
        )

    def close(self) -> None:
        """End the connection, and the answers to checks; another send opens a new one.

        A send under way in another thread goes on as after a lost connection, over a new one that
        ends with it.
        """
        self._closes += 1
        checker, self._checker = self._checker, None
        if checker is not None:
            checker.close()
        self._hang_up()

    def _answer_checks(self) -> None:
        """Begin to answer checks of transactions, if there are any."""
        options, rounds = self._transactions, self._check_rounds()
        if options is None or rounds is None:
            return
        with self._lock:
            if self._checker is None:
                checker = self._checker = Checker(rounds, self._check_servers, options.check)
                checker.start()  # its first check may close this producer

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(self, given: Sequence[Delivery]) -> None:
        if not given:
            return
        requests, closes = list(given), self._closes
        with self._call(requests) as number:
            try:
                self._check_turn(number, requests)
                requests[:] = [part for request in requests for part in self._divided(request)]
                for request in requests:
                    while (pause_s := self._try(request)) is not None:
                        time.sleep(pause_s)
            finally:
                if self._closes != closes:
                    self._hang_up()

    @contextmanager
    def _call(self, requests: Sequence[Delivery]) -> Iterator[int]:
        """Wait for the call's turn, which lasts as long as the context; yield its number."""
        with self._lock:  # turns come in the order of the numbers
            number, turn = self._order.enter(), self._turns.ask()
        stored = left = False

        def leave() -> None:
            nonlocal left
            left = True
            keys = {key for request in requests for key in request.keys()}  # noqa: SIM118
            self._order.leave(number, failed=() if stored else keys)

        try:
            with turn:
                try:
                    yield number
                    stored = True
                except SendFailed as error:
                    for request in requests:
                        for message_id in request.open_ids():
                            why = "not sent: an earlier part failed"
                            error.failures.setdefault(message_id, why)
                    raise
                finally:
                    leave()  # before the next turn, which must not overtake a failure
        finally:
            if not left:  # interrupted before its turn
                leave()

    def _check_turn(self, number: int, requests: Sequence[Delivery]) -> None:
        """Raise SendFailed if the call must not be sent when its turn comes."""
        for request in requests:
            if self._order.held_back(number, request.keys()):
                raise request.given_up("an earlier send of its key failed while this one waited")
            if now_ns() > request.deadline_ns:
                raise request.given_up("it timed out while it waited for earlier sends")

    def _divided(self, request: Delivery) -> list[Delivery]:
        """Return the requests to send instead of *request*; see ``EncodedRequests``."""
        encoded = self._encoded
        for topic in encoded.topics_to_ask(request, now_ns()):
            call, timeout_s = encoded.question(topic, request, now_ns())
            try:
                answer = self._connected(timeout_s).call(call, timeout_s=timeout_s)
            except ClientError as error:
                self._hang_up()
                self._servers.go_on()
                encoded.not_told(topic, error, now_ns())
                break
            except BaseException:
                self._hang_up()
                raise
            encoded.told(topic, answer, now_ns())
        return encoded.divided(request)

    def _connected(self, timeout_s: float) -> Connection:
        connection = self._connection  # a copy: another thread may close it at any time
        if connection is None:
            connection = Connection(self._servers.destination, timeout_s=timeout_s)
            self._connection = connection
        return connection

    def _try(self, request: Delivery) -> float | None:
        sent = False
        was_encoded = request.entries is not None
        try:
            call, timeout_s = request.call(now_ns())
            request.ask(self._servers.address)
            connection = self._connected(timeout_s)
            sent = True
            result = connection.call(call, timeout_s=timeout_s)
        except ClientError as error:
            self._hang_up()
            if was_encoded:
                self._encoded.failed(error)
            self._servers.go_on()
            return request.pause_after_error(
                error, sent=sent, now_ns=now_ns(), jitter=chance.fraction()
            )
        except BaseException:  # interrupted, such as by Ctrl-C: the connection is closed
            self._hang_up()
            raise
        pause_s = request.pause_after(result, now_ns=now_ns(), jitter=chance.fraction())
        if was_encoded and request.entries is None:
            self._encoded.refused(request)
        return pause_s


class Transaction(BaseTransaction):
    """The ``with`` block of ``Producer.transaction``; ``message_id`` is the id of its message."""

    def __init__(
        self,
        prepared: Delivery,
        *,
        ending: Callable[[Delivery, bool], Delivery],
        running: set[str],
        send: Callable[[Sequence[Delivery]], None],
        answer_checks: Callable[[], None],
    ) -> None:
        """Called by the producer."""
        super().__init__(prepared, ending=ending, running=running)
        self._send = send
        self._answer_checks = answer_checks

    def __enter__(self) -> Self:
        requests = self._enter()
        try:
            self._answer_checks()
            self._send(requests)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._send(self._commit(error))
        finally:
            self._leave()

    def rollback(self) -> None:
        """Drop the message; the block goes on, and its end does nothing more.

        May be repeated. Raises SendFailed if that is not confirmed: the check decides then.
        RuntimeError outside of the block.
        """
        self._send(self._rollback())
        self._rolled_back()
