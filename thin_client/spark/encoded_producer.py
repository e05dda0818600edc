"""A blocking producer of encoded messages. What it cannot send so, it sends as messages."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from thin_client import calls
from thin_client.backoff import backoff_ns, is_news
from thin_client.connection import Connection
from thin_client.delivery import AGAIN, UNKNOWN, Outgoing
from thin_client.errors import ClientError, ProxyFault, SendFailed
from thin_client.options import client_version
from thin_client.producer import Producer
from thin_client.servers import Servers
from thin_client.spark.encoding import Part, id_of
from thin_client.spark.options import Connecting
from thin_client.spark.server_order import KnownFailures
from thrift_idl import producer

_log = logging.getLogger("orderlane")

#: Longest time that the proxy tries, in seconds, and the share of the time-out that it gets: it
#: must have ended before the client asks another one, or its messages could follow later ones.
_TRY_S, _SHARE = 3.0, 0.5


@dataclass(slots=True)
class Support:
    """Facts about the proxy and the topic, shared by the producers of a task.

    ``is_missing``: the proxy is of an earlier version, without ``sendEncoded``.
    ``queue_was_missing``: a topic did not have a queue that its route named.
    """

    is_missing: bool = False
    queue_was_missing: bool = False

    def proxy_is_older(self) -> None:
        """Note that the proxy does not have the method."""
        self.is_missing = True

    def queue_is_missing(self) -> None:
        """Note that a route may have changed."""
        self.queue_was_missing = True

    def take_missing_queue(self) -> bool:
        """Return whether a route may have changed since the last call."""
        was, self.queue_was_missing = self.queue_was_missing, False
        return was


class EncodedProducer:
    """Sends the messages of some queues, one request after the other. One thread only, apart from
    ``close``.
    """

    def __init__(
        self,
        connecting: Connecting,
        support: Support,
        *,
        patience_s: float,
        failures: KnownFailures | None = None,
    ) -> None:
        """*patience_s*: the time for which a request is repeated; *failures*: as of
        ``ProxyCalls``.
        """
        self._servers = Servers(connecting.servers, tls=connecting.tls)
        self._token = connecting.token
        self._timeout_s = connecting.request_timeout_s
        self._patience_s = patience_s
        self._support = support
        self._failures = KnownFailures() if failures is None else failures
        self._plain = Producer(
            connecting.servers, timeout_s=patience_s, token=connecting.token, tls=connecting.tls
        )
        self._connection: Connection | None = None
        self._closed = threading.Event()

    def send_batch(self, messages: Sequence[Outgoing]) -> object:
        """Store *messages* in order. Raises SendFailed."""
        return self._plain.send_batch(messages)

    def send_parts(self, parts: Sequence[Part]) -> None:
        """Store the messages of *parts* in order. Raises SendFailed."""
        for part in parts:
            tries = _Tries(part, time.monotonic() + self._patience_s)
            stored = self._send(part, tries)
            if stored < len(part.entries):
                try:
                    self._plain.send_batch(part.messages()[stored:])
                except SendFailed as error:
                    raise tries.still_in_doubt(error) from None

    def close(self) -> None:
        """End the connections, and a send under way."""
        self._closed.set()
        self._hang_up()
        self._plain.close()

    def _send(self, part: Part, tries: _Tries) -> int:
        """Return the number of messages that are stored; the rest is to be sent as messages: the
        proxy does not support more, or refuses it in a way that messages may avoid or explain.
        """
        stored, count = 0, len(part.entries)
        while stored < count and not self._support.is_missing:
            if self._closed.is_set():
                raise tries.given_up(stored, "the task ended", None)
            call, sent = self._call(part, stored), False
            try:
                connection = self._connected()
                sent = True
                answer = connection.call(call, timeout_s=self._timeout_s)
            except ClientError as error:
                self._hang_up()
                if isinstance(error, ProxyFault) and error.unknown_method:
                    self._support.proxy_is_older()
                    break
                self._failures.failed(str(self._servers.address), time.monotonic())
                self._servers.go_on()
                self._pause(tries, stored, str(error), doubt=sent, again=error.retriable)
                continue
            self._failures.answered(str(self._servers.address))
            if answer.code == 0:
                return count
            stored += answer.stored or 0
            if answer.code not in AGAIN:
                # The topic may have other queues by now: the proxy chooses the queue of a message.
                self._support.queue_is_missing()
                break
            reason = f"{self._servers.address} answers {answer.msg}"
            self._pause(tries, stored, reason, code=answer.code, doubt=answer.code in UNKNOWN)
        return stored

    def _call(self, part: Part, stored: int) -> calls.Call[producer.EncodedResult]:
        entries = part.entries[stored:]
        batch = producer.EncodedBatch(
            topic=part.place.topic,
            qid=part.place.qid,
            count=len(entries),
            body=b"".join(entries),
            timeoutMs=max(1, int(min(_TRY_S, _SHARE * self._timeout_s) * 1000)),
            version=client_version(),
            route=None if part.place.qid is None else part.place.route,
            token=self._token,
        )
        return calls.send_encoded(batch)

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is None:
            connection = Connection(self._servers.destination, timeout_s=self._timeout_s)
            self._connection = connection
        return connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _pause(
        self,
        tries: _Tries,
        stored: int,
        reason: str,
        *,
        code: int | None = None,
        doubt: bool,
        again: bool = True,
    ) -> None:
        """Wait before the next try. Raises SendFailed if there is none."""
        pause_s = tries.failed(doubt=doubt)
        if not again or time.monotonic() + pause_s >= tries.until_s or self._closed.is_set():
            raise tries.given_up(stored, reason, code)
        if is_news(tries.failures):
            topic = tries.part.place.topic
            _log.warning("sending to %s failed, retrying: %s", topic, reason)
        self._closed.wait(pause_s)


@dataclass(slots=True)
class _Tries:
    """Failed tries of a part."""

    part: Part
    until_s: float
    failures: int = 0
    in_doubt: bool = False

    def failed(self, *, doubt: bool) -> float:
        """Count a failed try; return the seconds until the next one."""
        self.failures += 1
        self.in_doubt |= doubt
        return backoff_ns(self.failures, random.random()) / 1e9

    def given_up(self, stored: int, reason: str, code: int | None) -> SendFailed:
        """Return the error for the messages from number *stored* on."""
        ids = [id_of(entry) for entry in self.part.entries[stored:]]
        others = f" and {len(ids) - 1} others" if len(ids) > 1 else ""
        end = "may have been stored" if self.in_doubt else "not stored"
        topic = self.part.place.topic
        return SendFailed(
            f"sending to {topic} failed: {reason} (message {ids[0]}{others}: {end})",
            code=code,
            failures=dict.fromkeys(ids, reason),
            outcome_unknown=self.in_doubt,
        )

    def still_in_doubt(self, error: SendFailed) -> SendFailed:
        """Return the *error* of messages that are sent after these tries, which may have stored
        them.
        """
        if error.outcome_unknown or not self.in_doubt:
            return error
        return SendFailed(
            f"{error}; an earlier request may have stored them",
            code=error.code,
            failures=error.failures,
            outcome_unknown=True,
        )
