"""Errors of the remoting protocol and of brokers. A caller asks ``retriable``, never the class."""

from __future__ import annotations

import os
from collections.abc import Collection


class RemotingError(Exception):
    """Base of the errors below; never raised itself. ``retriable``: trying again may help.
    ``illegal``: what was sent is not taken as it is, for its size or for what it holds.
    """

    retriable = False
    illegal = False


class LocalProtocolError(RemotingError):
    """We tried to send or do what the protocol forbids: a bug on our side."""

    illegal = True


class NoSuchQueue(LocalProtocolError):
    """A message is for a queue, by its number, that its topic does not have."""


class RemoteProtocolError(RemotingError):
    """The other side sent bytes that are no remoting frame: that connection is closed."""


class InvalidCommand(RemotingError):
    """A whole frame whose header field or body is missing or wrong; the connection goes on.

    A server answers it with code 1 and this text.
    """


class ConnectionLost(RemotingError):
    """The connection ended, or could not be made, before the answer came. Effect unknown."""

    retriable = True


class NotConnected(ConnectionLost):
    """The connection could not be made, so nothing was sent: certainly no effect."""


class BrokersAway(ConnectionLost):
    """Some of the brokers that a request is for were not reached; all others have done it.

    ``brokers``: their names.
    """

    def __init__(self, text: str, brokers: Collection[str]) -> None:
        super().__init__(text)
        self.brokers = tuple(sorted(brokers))


class RequestTimeout(RemotingError):
    """No answer in time. Effect unknown."""

    retriable = True


class NotSent(RemotingError):
    """Held back, so that it overtakes nothing: an earlier message of its key, or before it in its
    queue's part of the batch, was not stored. This one certainly is not.
    """

    retriable = True


#: Response codes after which the same request may succeed later or elsewhere: system error,
#: busy, service not available, flush and replica time-outs, flow control, go away.
_RETRIABLE_CODES = frozenset({1, 2, 10, 11, 12, 14, 215, 1500})
_MESSAGE_ILLEGAL = 13
#: There is no such topic; of our brokers also: no such queue of it to write to.
_MISSING_CODE = 17
#: How Apache's brokers begin to say that of a queue, with the code of a system error.
_MISSING_QUEUE = "request queueId["
_FORBIDDEN_CODE = 16


class BrokerError(RemotingError):
    """The broker or nameserver answered with a code other than success."""

    def __init__(self, code: int, remark: str, *, request: str = "") -> None:
        """*code* as in ``ResponseCode``; *request* names what was asked."""
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
        """True if the broker takes no message, or no batch, such as that one."""
        return self.code == _MESSAGE_ILLEGAL

    @property
    def says_missing(self) -> bool:
        """True if the topic, or the queue that a send was for, is not there: nothing was stored."""
        return self.code == _MISSING_CODE or self.remark.startswith(_MISSING_QUEUE)

    @property
    def says_forbidden(self) -> bool:
        """True if a topic may not be used so, or by this account: nothing was done."""
        return self.code == _FORBIDDEN_CODE


class StoreError(Exception):
    """The data folder cannot be used as it is; the text says what was found, what is right."""


class TlsError(Exception):
    """A certificate, a key or an authority cannot be used; the text says which, and why."""


def reason_of(error: OSError) -> str:
    """Why the system refused, as "Connection refused": an event loop adds numbers and addresses."""
    code = error.errno or 0
    return os.strerror(code) if code > 0 else error.strerror or str(error)
