"""Single pull, settle and extend calls for scripts and tests: no threads, nothing automatic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeVar

from thin_client import calls, forks
from thin_client.arguments import check_count, check_timeout
from thin_client.arrivals import read_leases
from thin_client.backoff import tries_elsewhere
from thin_client.clock import now_ns
from thin_client.connection import Connection
from thin_client.errors import ClientError, ConnectionLost
from thin_client.lease import Home
from thin_client.message import Message, Outcome
from thin_client.options import check_options, client_version, default_client_id
from thin_client.servers import Servers, Tls
from thin_client.verdicts import Verdicts
from thrift_idl import consumer

T = TypeVar("T")

#: The shortest extension of a lease, and the longest time on the wire.
_LEAST_S, _MOST_MS = 0.001, 2**31 - 1


class Puller:
    """Pull messages of a group, and settle and extend them, call by call.

    The puller does not extend, retry or order: the application has to handle the pulled messages of
    one ``order_key`` one after the other, each within its ``seconds_left``. Every method may raise
    ConnectionLost, Refused, ProxyFault or ProtocolError; the next call connects again::

        with Puller("proxy:9713", group="billing") as puller:
            for message in puller.pull(max_messages=10):
                charge(message.json())
                puller.settle(message)
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        group: str,
        topics: Sequence[str] | None = None,
        client_id: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        timeout_s: float = 3.0,
    ) -> None:
        """Create a puller; the first call connects.

        Args:
            servers: ``host:port``, several separated by commas, or a list.
            group: the consumer group.
            topics: topics to pull; None (default): every topic of the group.
            client_id: name shown to operators; default: host, process and a random suffix.
            token: access token, if the proxy requires one.
            tls: TLS settings; None (default): no TLS.
            timeout_s: time-out of a connection or an answer, in addition to a pull's own wait.

        Raises ValueError or TypeError for an invalid option.
        """
        check_options(group=group, topics=topics, client_id=client_id, token=token)
        check_timeout("timeout_s", timeout_s)
        self._servers = Servers(servers, tls=tls)
        self._group = group
        self._topics = None if topics is None else list(topics)
        self._client_id = client_id or default_client_id()
        self._token = token
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._closes = 0  # calls of ``close``
        self._failures = 0  # consecutive failures of pulls
        forks.register(self)

    def forked(self) -> None:
        """Drop the parent's connection in a child process: the next call connects again."""
        self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def pull(self, max_messages: int = 1, *, wait_s: float = 1.0) -> list[Message]:
        """Return up to *max_messages*; wait up to *wait_s* for the first one.

        Raises TypeError or ValueError unless *max_messages* is 1 or more and *wait_s* 0 or more.
        """
        check_count("max_messages", max_messages, least=1)  # for a proxy 0 means all it has
        check_timeout("wait_s", wait_s)
        request = consumer.PullRequest(
            groupId=self._group,
            topics=self._topics,
            maxBatchSize=max_messages,
            maxLingerTime=_milliseconds(wait_s),
            version=client_version(),
            clientId=self._client_id,
            token=self._token,
            manyQueues=True,
        )
        connection = self._connected()
        sent_ns = now_ns()
        try:
            response = self._call(connection, calls.pull(request), self._timeout_s + wait_s)
        except ClientError as error:
            self._failures += 1
            if not error.leaves_connection and tries_elsewhere(error, self._failures):
                self._servers.go_on()  # settles and extends do not: others lack the leases
            raise
        self._failures = 0
        home = Home(response.home)
        return [
            lease
            for part in (response, *(response.more or ()))
            for lease in read_leases(part, home, sent_ns=sent_ns, length_ms=response.leaseMs or 0)
        ]

    def settle(self, message: Message, outcome: Outcome = None) -> bool:
        """Ack *message*, or send another verdict: Retry, Reject or Defer.

        Return False if its lease had expired: another client may have received it.
        """
        verdicts = Verdicts()
        queue = (message.topic, message.queue)
        verdicts.add(queue, self._context(message), message.lease_id, outcome, 0, now_ns())
        request = consumer.AckRequest(
            groupId=self._group,
            acks=verdicts.batches(),
            clientId=self._client_id,
            token=self._token,
        )
        answer = self._call(self._connected(), calls.control(request), self._timeout_s)
        return not answer.notHeld

    def extend(self, message: Message, seconds: float) -> bool:
        """Extend the lease to *seconds* from now, at most the visibility timeout.

        Return False if it has expired. Raises TypeError or ValueError unless *seconds* is a number
        of at least 0.001.
        ``message.deadline_ns`` counts from before the request, and does not reflect a shorter limit
        of the proxy.
        """
        check_timeout("seconds", seconds)
        if seconds < _LEAST_S:
            raise ValueError(f"seconds is {seconds}: expected at least {_LEAST_S}")
        reference = consumer.LeaseRef(context=self._context(message), leaseId=message.lease_id)
        request = consumer.ExtendRequest(
            groupId=self._group,
            leases=[reference],
            ms=_milliseconds(seconds),
            clientId=self._client_id,
            token=self._token,
        )
        connection = self._connected()
        asked_ns = now_ns()
        answer = self._call(connection, calls.control(request), self._timeout_s)
        if answer.notHeld:
            message.lose()
            return False
        message.hold_until(asked_ns + int(seconds * 1e9))
        return True

    def close(self) -> None:
        """Close the connection; the next call opens a new one.

        A call under way in another thread fails with ConnectionLost.
        """
        self._closes += 1
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _context(self, message: Message) -> consumer.Context:
        return consumer.Context(groupId=self._group, topic=message.topic, qid=message.queue)

    def _connected(self) -> Connection:
        closes = self._closes
        connection = self._connection  # a copy: another thread may close it at any time
        if connection is None:
            self._connection = connection = self._connect()
            if self._closes != closes:  # ``close`` did not see it
                self.close()
                raise ConnectionLost(f"closed while connecting to {connection.address}")
        return connection

    def _connect(self) -> Connection:
        left = len(self._servers)
        while True:
            try:
                return Connection(self._servers.destination, timeout_s=self._timeout_s)
            except ConnectionLost:
                self._servers.go_on()
                left -= 1
                if not left:
                    raise

    def _call(self, connection: Connection, call: calls.Call[T], timeout_s: float) -> T:
        try:
            return connection.call(call, timeout_s=timeout_s)
        except BaseException as error:
            if not (isinstance(error, ClientError) and error.leaves_connection):
                self._connection = None  # closed, also by an interrupt such as Ctrl-C
            raise


def _milliseconds(seconds: float) -> int:
    return min(int(seconds * 1000), _MOST_MS)
