"""Transactions of a producer: options, the decision of a check, and the requests of a checker. No
I/O, but it logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from thin_client import calls
from thin_client.arguments import check_count, check_text
from thin_client.backoff import backoff_ns, is_news
from thin_client.errors import ClientError, ProxyFault
from thrift_idl import producer

_log = logging.getLogger("orderlane")

#: EndRequest.outcome.
COMMIT, ROLLBACK = 1, 2
#: Time for which a proxy holds a request for checks, and the time-out of an answer beyond it.
_WAIT_S, ANSWER_S = 20.0, 3.0
#: The proxy's limit.
_MOST_TOPICS = 100


class Decision(Enum):
    """The outcome of a transaction, as a check finds it where the work was done."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    #: Not known yet. The broker asks again, 15 times by default, and then gives the message up.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message of an open transaction, which no consumer can see. ``born_ms`` is in milliseconds
    since 1970; ``transaction`` names the transaction at its broker.
    """

    topic: str
    body: bytes
    message_id: str
    key: str | None
    tag: str | None
    properties: Mapping[str, str]
    born_ms: int
    transaction: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Options of a producer for transactions: its group, and a check that returns their outcome.

    Args:
        group: the producer group. All its producers must know the outcomes of each other's
            transactions, since a broker asks any of them.
        topics: the topics of the group's transactions.
        check: called with the PreparedMessage of a transaction whose outcome the broker does not
            know: because its producer has ended, its commit was lost, or its ``with`` block raised
            an exception. Returns the Decision, found by ``message_id`` where the work was done. It
            may be called several times, by several producers, also for transactions of producers
            that have ended. An exception in it is logged and counts as UNKNOWN. With AsyncProducer
            it may be an ``async def``; a plain function runs in a thread.
        check_after_s: seconds until the broker asks first; default 60. Other producers of the
            group may be asked while a ``with`` block runs longer, and find no outcome yet.

    Raises TypeError or ValueError for an invalid argument.
    """

    group: str
    topics: Collection[str]
    check: Callable[[PreparedMessage], Any]
    check_after_s: int = 60

    def __post_init__(self) -> None:
        check_text("group", self.group)
        if not self.group:
            raise ValueError("group is empty: expected the name of a producer group")
        topics: object = self.topics
        if (
            isinstance(topics, str)
            or not isinstance(topics, Collection)
            or not all(isinstance(each, str) for each in topics)
        ):
            raise TypeError(f"topics is {topics!r}: expected a list of names")
        if not 0 < len(topics) <= _MOST_TOPICS or not all(topics):
            raise ValueError(f"topics is {topics!r}: expected 1 to {_MOST_TOPICS} names")
        if not callable(self.check):
            raise TypeError(f"check is {self.check!r}: expected a function")
        check_count("check_after_s", self.check_after_s, least=0)


class CheckRounds:
    """The requests of one producer that answers checks, and the processing of their answers."""

    def __init__(self, options: Transactions, *, token: str | None, running: set[str]) -> None:
        """*running*: ids of the transactions whose ``with`` blocks run in this producer."""
        self._options = options
        self._token = token
        self._running = running
        self._failures = 0

    def poll(self) -> tuple[calls.Call[producer.ChecksAnswer], float]:
        """Return the call that waits for checks, and its time-out in seconds."""
        request = producer.ChecksRequest(
            group=self._options.group,
            topics=list(self._options.topics),
            maxWaitMs=int(_WAIT_S * 1000),
            token=self._token,
        )
        return calls.transaction_checks(request), _WAIT_S + ANSWER_S

    def to_check(self, answer: producer.ChecksAnswer) -> Iterator[PreparedMessage]:
        """Yield the messages to check. Raises ClientError if the proxy refused the request.

        The outcome of a block that runs here is certainly not known yet.
        """
        if answer.code != 0:
            raise ClientError(f"{answer.msg} (code {answer.code})")
        self._failures = 0
        for each in answer.checks or ():
            if each.messageId not in self._running:
                yield _prepared(each)

    def ended(self, message: PreparedMessage, decision: object) -> calls.Call[Any] | None:
        """Return the call that ends the transaction of *message*; None if *decision* is UNKNOWN, or
        no Decision.
        """
        if not isinstance(decision, Decision):
            _log.error(
                "the check of message %s returned %r: expected Decision.COMMIT, ROLLBACK or"
                " UNKNOWN; the broker asks again",
                message.message_id,
                decision,
            )
            return None
        if decision is Decision.UNKNOWN:
            return None
        request = producer.EndRequest(
            transaction=message.transaction,
            outcome=COMMIT if decision is Decision.COMMIT else ROLLBACK,
            token=self._token,
        )
        return calls.end_transaction(request, timeout_ms=int(ANSWER_S * 1000))

    def answered(self, message: PreparedMessage, result: producer.Result) -> None:
        """Process the answer to the end of a transaction: if it did not end, the broker asks
        again.
        """
        if result.code != 0:
            _log.warning(
                "the outcome of message %s was not stored: %s", message.message_id, result.msg
            )

    def failed(self, error: ClientError, server: object, jitter: float) -> float:
        """Return the seconds until the next request; *jitter* in [0, 1) spreads clients."""
        self._failures += 1
        if is_news(self._failures):
            why = why_unsupported(error, server) or str(error)
            _log.warning("no checks of transactions from %s, retrying: %s", server, why)
        return backoff_ns(self._failures, jitter) / 1e9


def failed_check(message: PreparedMessage, error: BaseException) -> None:
    """Log an *error* of an application's check."""
    _log.error(
        "the check of message %s failed; the broker asks again", message.message_id, exc_info=error
    )


def why_unsupported(error: ClientError, server: object) -> str | None:
    """Return a sentence if the proxy at *server* is of a version without transactions."""
    if isinstance(error, ProxyFault) and error.unknown_method:
        return f"the proxy at {server} does not support transactions: upgrade it"
    return None


def _prepared(check: producer.TransactionCheck) -> PreparedMessage:
    message = check.message or producer.Message()
    return PreparedMessage(
        topic=message.topic or "",
        body=message.body or b"",
        message_id=check.messageId or "",
        key=message.key,
        tag=message.tags,
        properties=message.properties or {},
        born_ms=check.bornAtMs or 0,
        transaction=check.transaction or "",
    )
