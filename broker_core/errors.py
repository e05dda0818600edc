"""Errors of the remoting protocol and of brokers. Callers check ``retriable``, not the class."""

from __future__ import annotations

import os
from collections.abc import Collection


class RemotingError(Exception):
    """Base class of the errors below; never raised itself.

    ``retriable``: the same request may succeed later. ``illegal``: the message is rejected because
    of its size or content. ``unsent``: nothing was sent, so the request has no effect.
    """

    retriable = False
    illegal = False
    unsent = False


class LocalProtocolError(RemotingError):
    """The caller attempted something that the protocol forbids: a bug on this side."""

    illegal = True


class NoSuchQueue(LocalProtocolError):
    """The topic has no queue with the message's queue id, or the id is from another route."""


class RemoteProtocolError(RemotingError):
    """The peer sent bytes that are not a remoting frame; the connection is closed."""


class InvalidCommand(RemotingError):
    """A complete frame has a missing or invalid header field or body; the connection stays open.

    A server answers it with code 1 and the text of this error.
    """


class ConnectionLost(RemotingError):
    """The connection ended, or could not be made, before the answer arrived. Effect unknown."""

    retriable = True


class NotConnected(ConnectionLost):
    """The connection could not be made, or had ended before, so nothing was sent: no effect."""

    unsent = True


class NotRegistered(NotConnected):
    """The nameserver answers, but no broker that could do so is registered there. Nothing was
    sent.
    """


class BrokersAway(ConnectionLost):
    """Some brokers were not reached; all others have executed the request.

    ``brokers``: their names.
    """

    def __init__(self, text: str, brokers: Collection[str]) -> None:
        super().__init__(text)
        self.brokers = tuple(sorted(brokers))


class RequestTimeout(RemotingError):
    """No answer within the timeout. Effect unknown."""

    retriable = True


class NotSentInTime(RequestTimeout):
    """The time was up before the request could be sent: no effect."""

    unsent = True


class NotSent(RemotingError):
    """Held back, so that it overtakes no other message: certainly not stored.

    An earlier message of the same key, or of the same queue in the batch, was not stored, or no
    queue was found.
    """

    retriable = True
    unsent = True


#: Response codes after which the same request may succeed later or elsewhere: system error, busy,
#: service not available, flush and replica timeouts, flow control, go away.
_RETRIABLE_CODES = frozenset({1, 2, 10, 11, 12, 14, 215, 1500})
_MESSAGE_ILLEGAL = 13
#: The topic does not exist; from our brokers also: it has no such queue for writing.
_MISSING_CODE = 17
#: Beginning of an Apache broker's remark for a missing queue, sent with the code of a system error.
_MISSING_QUEUE = "request queueId["
_FORBIDDEN_CODE = 16
_UNAVAILABLE_CODE = 14
#: Flush and replica timeouts, too few replicas.
_STORED_CODES = frozenset({10, 11, 12})
#: Beginning of our brokers' remark to a request that only a master serves.
NOT_MASTER = "this broker is not the master"
#: Beginning of our brokers' remark to a write that may be stored or lost.
UNCONFIRMED = "not confirmed by "
#: Beginning of our brokers' remark to a look-up of a message by its place in the log.
NO_MESSAGE = "no message starts at offset "
#: Our servers' remark to a request that comes while they stop.
STOPPING = "this server is stopping: nothing was done"


class BrokerError(RemotingError):
    """The broker or nameserver answered with a code other than success."""

    def __init__(self, code: int, remark: str, *, request: str = "") -> None:
        """Describe the answer; *code* as in ``ResponseCode``, *request* names the request."""
        self.code = code
        self.remark = remark
        self.request = request
        super().__init__(f"{request or 'request'} was answered with code {code}: {remark}")

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """True if the same request may succeed later."""
        return self.code in _RETRIABLE_CODES

    @property
    def illegal(self) -> bool:  # type: ignore[override]
        """True if the broker rejects such a message or batch."""
        return self.code == _MESSAGE_ILLEGAL

    @property
    def says_missing(self) -> bool:
        """True if the topic, or the queue of a send, does not exist: nothing was stored."""
        return self.code == _MISSING_CODE or self.remark.startswith(_MISSING_QUEUE)

    @property
    def says_not_master(self) -> bool:
        """True if another broker of the same name may be the master: nothing was done."""
        return self.code == _UNAVAILABLE_CODE and self.remark.startswith(NOT_MASTER)

    @property
    def says_unconfirmed(self) -> bool:
        """True if the broker has written it, and its disk or the next elected master may not have
        it. Effect unknown.
        """
        return self.remark.startswith(UNCONFIRMED)

    @property
    def says_no_message(self) -> bool:
        """True if no message starts at the place that was looked up: retention may have deleted
        it.
        """
        return self.remark.startswith(NO_MESSAGE)

    @property
    def says_stored(self) -> bool:
        """True if it is stored or done, but less durably than the broker requires."""
        return self.code in _STORED_CODES

    @property
    def says_stopping(self) -> bool:
        """True if the server is about to close the connection: nothing was done."""
        return self.code == _UNAVAILABLE_CODE and self.remark == STOPPING

    @property
    def says_forbidden(self) -> bool:
        """True if the topic or account does not permit the request: nothing was done."""
        return self.code == _FORBIDDEN_CODE


class StoreError(Exception):
    """The data folder cannot be used; the text says what was found and what would be right."""


class MayBeStored(OSError):
    """The log failed after data was written to it: the next start may find that data."""


class TlsError(Exception):
    """A certificate, key or authority cannot be used; the text names it and the reason."""


def reason_of(error: OSError) -> str:
    """Return the system's reason, such as "Connection refused", without numbers and addresses that
    an event loop adds.
    """
    code = error.errno or 0
    return os.strerror(code) if code > 0 else error.strerror or str(error)
